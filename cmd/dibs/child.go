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

// A command is what is to be run.
type command struct {
	path string
	argv []string
	env  []string

	watchdog *pendingWatchdog
}

// find looks a command up, as env(1) does, before anything is locked for it.
func findCommand(argv []string, env []string) (command, error) {
	path, err := exec.LookPath(argv[0])
	switch {
	case errors.Is(err, exec.ErrDot): // what PATH says is the user's affair
	case errors.Is(err, fs.ErrPermission):
		return command{}, exitWith(exitCannotRun, err)
	case err != nil && strings.ContainsAny(argv[0], " \t;&|<>$"):
		return command{}, exitWith(exitNotFound, fmt.Errorf("%w; a command line for the shell needs -c", err))
	case err != nil:
		return command{}, exitWith(exitNotFound, err)
	}
	return command{path: path, argv: argv, env: env}, nil
}

// with returns the environment with more variables: in place of those of the same name,
// of which a program would see the first or the last, as it happens.
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

// A child is the command as it runs, a child of its guard, and leads a process group.
type child struct {
	tree
	killDescendants bool // that descends from it is to end
}

// spawn runs a command, and what is neither a program nor says which interpreter it is
// for by the shell, as shells do.
func spawn(c command, sys *syscall.SysProcAttr) (int, error) {
	attr := &syscall.ProcAttr{Env: c.env, Files: []uintptr{0, 1, 2}, Sys: sys}
	pid, err := syscall.ForkExec(c.path, c.argv, attr)
	if errors.Is(err, syscall.ENOEXEC) {
		pid, err = syscall.ForkExec("/bin/sh", append([]string{"sh", c.path}, c.argv[1:]...), attr)
	}
	switch {
	case err == nil:
		return pid, nil
	case errors.Is(err, fs.ErrNotExist): // it, or its interpreter, has gone in the meantime
		return 0, exitWith(exitNotFound, &os.PathError{Op: "run", Path: c.path, Err: err})
	}
	return 0, exitWith(exitCannotRun, &os.PathError{Op: "run", Path: c.path, Err: err})
}

// orphaned waits for a command whose guard is dead: this process is its parent then, if the
// system lets it be that.
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

// codeOfStatus is the exit code of a child, as shells tell it.
func exitCodeOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return status.ExitStatus()
}
