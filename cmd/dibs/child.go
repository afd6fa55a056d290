package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// A command is what is to be run.
type command struct {
	path string
	argv []string
	env  []string

	guard *guardSoon
}

// find looks a command up, as env(1) does, before anything is locked for it.
func find(argv []string, env []string) (command, error) {
	path, err := exec.LookPath(argv[0])
	switch {
	case errors.Is(err, exec.ErrDot): // what PATH says is the user's affair
	case errors.Is(err, fs.ErrPermission):
		return command{}, exitWith(exitCannotRun, err)
	case err != nil:
		return command{}, exitWith(exitNotFound, err)
	}
	return command{path: path, argv: argv, env: env}, nil
}

// with returns the environment with more variables: in place of those of the same name,
// of which a program would see the first or the last, as it happens.
func with(env []string, more ...string) []string {
	var all []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if !set(more, name) {
			all = append(all, v)
		}
	}
	return append(all, more...)
}

func set(env []string, name string) bool {
	for _, v := range env {
		if strings.HasPrefix(v, name+"=") {
			return true
		}
	}
	return false
}

// A child is the command as it runs, in the process group of its guard.
type child struct {
	pid     int
	group   int
	changes chan syscall.WaitStatus // it was stopped, or has ended: then it is the last one
}

// start runs a command in a process group, in the foreground of the terminal if there is
// one that is nobody else's.
func start(c command, group int, t *tty) (*child, error) {
	sys := attributes()
	sys.Setpgid, sys.Pgid = true, group
	if t != nil && !t.shared() {
		sys.Foreground, sys.Ctty = true, t.fd()
	}
	type result struct {
		pid int
		err error
	}
	started, changes := make(chan result), make(chan syscall.WaitStatus)
	go func() {
		runtime.LockOSThread() // the kernel takes this thread for the parent: see attributes
		pid, err := spawn(c, sys)
		started <- result{pid, err}
		if err == nil {
			await(pid, changes)
		}
	}()
	r := <-started
	return &child{pid: r.pid, group: group, changes: changes}, r.err
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

// await tells what becomes of a child, until it has ended.
func await(pid int, changes chan<- syscall.WaitStatus) {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		changes <- status
		if err != nil || !status.Stopped() {
			return
		}
	}
}

// signal tells the child and all that it has started.
func (c *child) signal(s syscall.Signal) { _ = syscall.Kill(-c.group, s) } // or it is gone

// gone reports whether nothing of the child's group is left, which its guard has left
// before. Orphans are children of the
// first process of a container, which may be this one.
func (c *child) gone() bool {
	for {
		if pid, err := syscall.Wait4(-c.group, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
			return !working(c.group)
		}
	}
}

// codeOfStatus is the exit code of a child, as shells tell it.
func codeOfStatus(status syscall.WaitStatus) int {
	if status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return status.ExitStatus()
}
