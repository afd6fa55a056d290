package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// A command is a program to run, with its arguments and environment.
type command struct {
	path string
	argv []string
	env  []string

	watchdog *pendingWatchdog
}

// findCommand finds a program in PATH, as env(1) does. It runs before the lock is
// acquired.
func findCommand(argv []string, env []string) (command, error) {
	path, err := exec.LookPath(argv[0])
	switch {
	case errors.Is(err, exec.ErrDot): // a relative PATH entry is the user's choice
	case errors.Is(err, fs.ErrPermission):
		return command{}, exitWith(exitCannotRun, err)
	case err != nil && strings.ContainsAny(argv[0], " \t;&|<>$"):
		return command{}, exitWith(exitNotFound, fmt.Errorf("%w; to run a shell command line, use -c", err))
	case err != nil:
		return command{}, exitWith(exitNotFound, err)
	}
	return command{path: path, argv: argv, env: env}, nil
}

// withEnv returns env with more variables. They replace variables of the same name: with
// duplicates, some programs use the first one and some the last one.
func withEnv(env []string, more ...string) []string {
	var all []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if !hasVar(more, name) {
			all = append(all, v)
		}
	}
	return append(all, more...)
}

func hasVar(env []string, name string) bool {
	for _, v := range env {
		if strings.HasPrefix(v, name+"=") {
			return true
		}
	}
	return false
}

// A child is the running command. It is a child of the watchdog and leads a process
// group.
type child struct {
	tree
	killDescendants bool // all descendants must end, not only the process group
}

// spawn starts a command. A text file without an interpreter line runs in /bin/sh, as in
// shells.
func spawn(c command, sys *syscall.SysProcAttr) (int, error) {
	attr := &syscall.ProcAttr{Env: c.env, Files: []uintptr{0, 1, 2}, Sys: sys}
	pid, err := syscall.ForkExec(c.path, c.argv, attr)
	if errors.Is(err, syscall.ENOEXEC) {
		pid, err = syscall.ForkExec("/bin/sh", append([]string{"sh", c.path}, c.argv[1:]...), attr)
	}
	switch {
	case err == nil:
		return pid, nil
	case errors.Is(err, fs.ErrNotExist): // the file or its interpreter is missing
		return 0, exitWith(exitNotFound, &os.PathError{Op: "run", Path: c.path, Err: err})
	}
	return 0, exitWith(exitCannotRun, &os.PathError{Op: "run", Path: c.path, Err: err})
}

// waitOrphan waits for a command whose watchdog is dead. This process is its parent then,
// if the system supports subreapers. Otherwise the result is SIGKILL.
func waitOrphan(pid int) syscall.WaitStatus {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(pid, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return syscall.WaitStatus(syscall.SIGKILL)
		default:
			return status
		}
	}
}

// exitCodeOf returns the exit code of a child as shells do: 128+N for signal N.
func exitCodeOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return status.ExitStatus()
}
