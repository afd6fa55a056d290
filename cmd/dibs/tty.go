package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// A tty is the terminal that dibs is in the foreground of: the command is to have that
// place, so that it can read and gets ^C and ^Z, and the place is to be given back.
type tty struct {
	file    *os.File
	own     int // process group
	command int // that of the command
}

// foreground returns the terminal, or nil if dibs is not in its foreground.
func foreground() *tty {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	t := &tty{file: file, own: unix.Getpgrp()}
	if !t.isForeground(t.own) {
		file.Close()
		return nil
	}
	return t
}

func (t *tty) fd() int { return int(t.file.Fd()) }

// has reports whether a process group is in the foreground.
func (t *tty) isForeground(group int) bool {
	now, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	return err == nil && now == group
}

// shared reports whether dibs may be in a pipeline, in which another program needs the
// foreground, as less does, or who types into cat. Then the command gets it only if it asks
// for it, and signals from the terminal come by way of dibs.
func (t *tty) inPipeline() bool { return !terminal(os.Stdin) || !terminal(os.Stdout) }

// give puts a process group into the foreground. From the background that is allowed only
// to those who ignore SIGTTOU.
func (t *tty) setForeground(group int) {
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, group) // or the terminal is gone
}

// close takes the foreground back if those who have it are gone.
func (t *tty) close() {
	now, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	if err == nil && now != t.own && (now == t.command || errors.Is(syscall.Kill(-now, 0), syscall.ESRCH)) {
		t.setForeground(t.own)
	}
	t.file.Close()
}
