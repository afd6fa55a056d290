package supervise

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A tty is dibs' terminal. Each time dibs is in the foreground, it gives the foreground to the
// command, so that the command can read and receives ^C and ^Z. dibs takes it back at the end. The
// shell may move dibs at any time, so the foreground group is read each time. The last value is
// stored only for hungUp.
type tty struct {
	file    *os.File // nil: there is no terminal
	own     int      // dibs' process group
	command int      // the command's process group
	lent    bool     // the command was put into the foreground at least once
	had     bool     // the command had the foreground at the last read
}

func openTerminal() *tty {
	file, _ := os.OpenFile("/dev/tty", os.O_RDWR, 0) // nil if it fails
	return &tty{file: file, own: unix.Getpgrp()}
}

func (t *tty) fd() int { return int(t.file.Fd()) }

// foreground returns the process group in the foreground, or 0.
func (t *tty) foreground() int {
	if t.file == nil {
		return 0
	}
	group, _ := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	if group > 0 {
		t.had = group == t.command
	}
	return group
}

// isForeground reports whether a process group is in the foreground.
func (t *tty) isForeground(group int) bool { return group > 0 && t.foreground() == group }

// hungUp reports whether the terminal is gone, for example because the shell was killed, while the
// command had its foreground. The kernel then sent SIGHUP to the command, and not to dibs. A
// background job outlives its terminal, and so does a command that ignores SIGHUP.
func (t *tty) hungUp() bool {
	if t.file == nil || !t.had || signal.Ignored(syscall.SIGHUP) {
		return false
	}
	_, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	return err != nil // EIO, or ENOTTY: no longer this session's terminal
}

// lend puts the command into the foreground.
func (t *tty) lend() {
	t.lent = true
	t.setForeground(t.command)
}

// inPipeline reports whether dibs may be in a pipeline: stdin or stdout is no terminal.
// Then another program, such as less or cat, may need the foreground. The command gets
// the foreground only when it uses the terminal, and dibs forwards signals from the
// terminal.
func (t *tty) inPipeline() bool { return !isTerminal(os.Stdin) || !isTerminal(os.Stdout) }

// HasJobControl reports whether a shell can continue this process after a stop. A session leader,
// for example started by ssh -t, has no such shell: the kernel does not stop it even at ^Z.
func HasJobControl() bool {
	session, err := unix.Getsid(0)
	return err != nil || session != unix.Getpgrp()
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// setForeground puts a process group into the foreground. From the background, this needs
// SIGTTOU to be ignored.
func (t *tty) setForeground(group int) {
	if !signal.Ignored(syscall.SIGTTOU) {
		signal.Ignore(syscall.SIGTTOU)
		defer signal.Reset(syscall.SIGTTOU) // the command of a later term would inherit it
	}
	if unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, group) == nil { // it fails only if the terminal is gone
		t.had = group == t.command
	}
}

// close takes the foreground back from the command, or from a group that no longer exists.
func (t *tty) close() {
	if t.file == nil {
		return
	}
	now := t.foreground()
	if t.lent && now > 0 && now != t.own && (now == t.command || errors.Is(syscall.Kill(-now, 0), syscall.ESRCH)) {
		t.setForeground(t.own)
	}
	t.file.Close()
}
