package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// Exit codes that shells use for a command that did not start or was killed.
const (
	CodeCannotRun = 126 // the command exists but cannot be run
	CodeNotFound  = 127 // there is no such command
	CodeSignal    = 128 // plus the signal's number
)

// A Command is a program to run, with its arguments and environment.
type Command struct {
	Path string
	Argv []string // including the program's name
	Env  []string // NAME=value
}

// A StartError reports that a command cannot be run.
type StartError struct {
	Code int // CodeCannotRun or CodeNotFound
	Err  error
}

// Error returns the cause's text.
func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Find finds a program in PATH, as env(1) does. Its error is a [*StartError]. Call it
// before the lock is acquired.
func Find(argv, env []string) (Command, error) {
	path, err := exec.LookPath(argv[0])
	switch {
	case errors.Is(err, exec.ErrDot): // a relative PATH entry is the user's choice
	case errors.Is(err, fs.ErrPermission):
		return Command{}, &StartError{CodeCannotRun, err}
	case err != nil && strings.ContainsAny(argv[0], " \t;&|<>$"):
		return Command{}, &StartError{CodeNotFound, fmt.Errorf("%w; to run a shell command line, use -c", err)}
	case err != nil:
		return Command{}, &StartError{CodeNotFound, err}
	}
	return Command{Path: path, Argv: argv, Env: env}, nil
}

// WithEnv returns the command with more environment variables. They replace variables with the same
// name: with duplicates, some programs use the first and others the last.
func (c Command) WithEnv(more ...string) Command {
	var all []string
	for _, v := range c.Env {
		name, _, _ := strings.Cut(v, "=")
		if !hasVar(more, name) {
			all = append(all, v)
		}
	}
	c.Env = slices.Concat(all, more)
	return c
}

func hasVar(env []string, name string) bool {
	for _, v := range env {
		if strings.HasPrefix(v, name+"=") {
			return true
		}
	}
	return false
}

// spawn starts a command. A text file without an interpreter line runs in /bin/sh, as in
// shells. Its error is a *StartError.
func (c Command) spawn(sys *syscall.SysProcAttr) (pid int, err error) {
	attr := &syscall.ProcAttr{Env: c.Env, Files: []uintptr{0, 1, 2}, Sys: sys}
	pid, err = syscall.ForkExec(c.Path, c.Argv, attr)
	if errors.Is(err, syscall.ENOEXEC) {
		pid, err = syscall.ForkExec("/bin/sh", append([]string{"sh", c.Path}, c.Argv[1:]...), attr)
	}
	code := CodeCannotRun
	switch {
	case err == nil:
		return pid, nil
	case errors.Is(err, fs.ErrNotExist): // the file or its interpreter is missing
		code = CodeNotFound
	}
	return 0, &StartError{code, &os.PathError{Op: "run", Path: c.Path, Err: err}}
}

// ExitCode returns a process's exit code as shells do: 128+N for signal N.
func ExitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return CodeSignal + int(status.Signal())
	}
	return status.ExitStatus()
}
