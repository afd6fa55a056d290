package supervise

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A tty is the terminal in whose foreground dibs runs. dibs gives the foreground to the
// command, so that the command can read and receives ^C and ^Z, and takes it back at the
// end.
type tty struct {
	file    *os.File
	own     int // process group of dibs
	command int // process group of the command
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

// isForeground reports whether a process group is in the foreground.
func (t *tty) isForeground(group int) bool {
	now, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	return err == nil && now == group
}

// inPipeline reports whether dibs may be in a pipeline: stdin or stdout is no terminal.
// Then another program, such as less or cat, may need the foreground. The command gets
// the foreground only when it uses the terminal, and dibs forwards signals from the
// terminal.
func (t *tty) inPipeline() bool { return !isTerminal(os.Stdin) || !isTerminal(os.Stdout) }

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// setForeground puts a process group into the foreground. From the background, this needs
// SIGTTOU to be ignored.
func (t *tty) setForeground(group int) {
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, group) // fails only if the terminal is gone
}

// close takes the foreground back from the command, or from a group that no longer
// exists.
func (t *tty) close() {
	now, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	if err == nil && now != t.own && (now == t.command || errors.Is(syscall.Kill(-now, 0), syscall.ESRCH)) {
		t.setForeground(t.own)
	}
	t.file.Close()
}
