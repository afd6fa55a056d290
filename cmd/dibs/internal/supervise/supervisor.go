package supervise

import (
	"errors"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dibslock/dibs"
)

// A supervisor starts a command under a lock, forwards signals to it, and ends it if the
// lock is about to be lost. Its watchdog is the command's parent.
type supervisor struct {
	lease      Lease
	rules      Rules
	signals    <-chan os.Signal
	report     Reporter
	notRenewed func() error

	child    *child
	watchdog *handle
	tty      *tty
	end      ending
	exit     exit

	replies <-chan string // from the watchdog
	left    remains       // the command's remains

	// If the watchdog is dead, this process is the reaper:
	reaper   *reaper
	children chan os.Signal // SIGCHLD
}

// A child is the running command. It is a child of the watchdog and leads a process group.
type child struct {
	tree
	begun           time.Time
	killDescendants bool // all descendants must end, also daemons
}

// An ending is the end of a command by the supervisor.
type ending struct {
	reason error     // why the command was asked to end, or its loss if only reported
	killAt time.Time // zero: not asked to end
}

// An exit is the end of the child. Its descendants may continue.
type exit struct {
	status           syscall.WaitStatus
	at               time.Time // zero: it runs
	leftoverReported bool      // processes left running were reported
}

func (s *supervisor) loop() {
	const least, most = 5 * time.Millisecond, 250 * time.Millisecond
	slowest := min(max(s.rules.TTL/20, least), most)
	ticks := time.NewTicker(slowest)
	defer ticks.Stop()
	lost := s.lease.Context().Done()
	for !s.over() {
		s.enforce()
		s.tty.foreground() // for hungUp
		select {
		case sig := <-s.signals:
			s.forward(sig)
		case answer, alive := <-s.replies:
			if !alive {
				s.watchdogDied()
				continue
			}
			s.handleReply(answer)
		case <-s.children:
			s.reap()
		case <-lost:
			lost = nil
		case <-ticks.C:
			if s.reaper != nil {
				s.reap()
			}
		}
	}
}

// over reports whether nothing is left of the command, or nothing for which Run waits.
func (s *supervisor) over() bool {
	switch s.left {
	case leftNothing:
		return true
	case leftDaemons:
		return !s.child.killDescendants && !s.child.askedLeft()
	}
	return false
}

// handleReply handles a line from the watchdog.
func (s *supervisor) handleReply(line string) {
	word, rest, _ := strings.Cut(line, " ")
	n, _ := strconv.Atoi(rest)
	switch word {
	case "changed":
		s.childChanged(syscall.WaitStatus(n))
	case "left":
		s.left = remains(n)
	case "refused":
		s.report.Refused(n)
	}
}

// childChanged handles the child's new state: stopped or exited.
func (s *supervisor) childChanged(status syscall.WaitStatus) {
	if status.Stopped() {
		s.childStopped(status.StopSignal())
		return
	}
	s.exit.status, s.exit.at = status, time.Now()
	s.report.Ended(End{status, s.tty.isForeground(s.child.pid), s.tty.hungUp()})
	if s.end.reason == nil && status.Signaled() && status.Signal() == syscall.SIGKILL && s.watchdog.expired() {
		s.stop(ErrLate, s.exit.at)
	}
}

// watchdogDied ends a command whose watchdog is dead: if dibs were also killed, nothing would end
// the command. This process is now the descendants' subreaper, so it can find them.
func (s *supervisor) watchdogDied() {
	<-s.watchdog.reaped // its children have a new parent then
	s.replies = nil
	s.child.root, s.child.otherChildren = os.Getpid(), s.watchdog.otherChildren
	s.reaper = &reaper{tree: &s.child.tree, files: s.watchdog.files, ended: !s.exit.at.IsZero()}
	s.children = make(chan os.Signal, 1)
	signal.Notify(s.children, syscall.SIGCHLD)
	if s.end.reason == nil {
		s.stop(errWatchdogKilled, time.Now())
	}
	s.reap()
}

// reap does a dead watchdog's work.
func (s *supervisor) reap() {
	r := s.reaper
	r.reap(s.childChanged)
	if !r.ended && (r.noChild || errors.Is(syscall.Kill(s.child.pid, 0), syscall.ESRCH)) {
		r.ended = true // the watchdog reaped it, or this system has no subreapers
		s.childChanged(syscall.WaitStatus(syscall.SIGKILL))
	}
	r.sweep(s.report.Refused)
	s.left = r.left()
}

// kill kills all the command's descendants.
func (s *supervisor) kill() {
	if s.reaper != nil {
		s.reaper.killing = true
	} else {
		s.watchdog.kill()
	}
}

// childStopped handles a stop of the child. There are three cases:
//
//   - It used the terminal in the background, and dibs is in the foreground: it gets the
//     foreground and is continued. See tty.inPipeline.
//   - The terminal stopped it, as after ^Z or in a job of the background: dibs stops as well, so
//     that the shell continues.
//   - Somebody stopped it in the background with SIGSTOP: nothing is done.
func (s *supervisor) childStopped(stop syscall.Signal) {
	usesTerminal := stop == syscall.SIGTTIN || stop == syscall.SIGTTOU
	had, own := s.tty.isForeground(s.child.pid), s.tty.isForeground(s.tty.own)
	switch {
	case usesTerminal && own:
		s.tty.lend()
		s.child.signal(syscall.SIGCONT)
	case s.tty.file != nil && (had || own || stop != syscall.SIGSTOP):
		s.suspend()
		if s.tty.isForeground(s.tty.own) && (had || usesTerminal || !s.tty.inPipeline()) {
			s.tty.lend()
		}
		s.child.signal(syscall.SIGCONT)
	}
}

// suspend stops dibs until the shell continues it, in the foreground or in the background. The
// lease is not renewed meanwhile: when it expires, the watchdog kills the command. suspend does
// nothing without a shell that can continue dibs.
func (s *supervisor) suspend() {
	if !HasJobControl() {
		return
	}
	if s.tty.isForeground(s.child.pid) {
		s.tty.setForeground(s.tty.own)
	}
	_ = syscall.Kill(0, syscall.SIGSTOP) // always permitted
	WaitUntilContinued(s.signals, s.forward)
}

// forward sends a signal to the command.
func (s *supervisor) forward(sig os.Signal) {
	n, _ := sig.(syscall.Signal)
	s.report.Forwarded(n)
	s.child.signal(n)
	// The shell moved dibs into the foreground. A later SIGCONT would discard a ^Z.
	if n == syscall.SIGCONT && s.tty.isForeground(s.tty.own) && !s.tty.inPipeline() {
		s.tty.lend()
	}
}

// enforce asks the command to end, or kills it, when due. The reasons are a lost lease, a deadline
// without a renewal, and Rules.MaxHold.
func (s *supervisor) enforce() {
	const leftoverDelay = time.Second
	deadline, now := s.lease.Deadline(), time.Now()
	lost := s.lease.Err()
	if !s.rules.OnLost.Warn {
		s.watchdog.extend(deadline, s.rules.TTL)
	}
	if !s.exit.at.IsZero() && s.child.groupEnded() && s.tty.isForeground(s.child.pid) {
		s.tty.setForeground(s.tty.own) // or ^C would reach nobody while dibs waits for the rest
	}
	if !s.exit.at.IsZero() && !s.exit.leftoverReported && now.Sub(s.exit.at) >= leftoverDelay {
		s.exit.leftoverReported = true
		s.report.Leftover(s.child.pid)
	}
	switch {
	case !s.end.killAt.IsZero():
		if !now.Before(s.end.killAt) {
			s.kill()
		}
	case lost != nil && s.end.reason == nil:
		s.stop(lost, killTime(lost, now, s.rules.KillAfter))
	case s.rules.MaxHold > 0 && now.Sub(s.child.begun) >= s.rules.MaxHold:
		s.stop(ErrMaxHold, now.Add(s.rules.KillAfter))
	case s.end.reason != nil: // a loss that was only reported
	case !s.rules.OnLost.Warn && deadline.Sub(now) <= s.rules.KillAfter:
		s.stop(s.notRenewed(), deadline)
	}
}

// killTime returns the time at which a command must be dead after its lease is lost. An expired
// lease, for example because this process was stopped, leaves no time. A revoked lease, or a
// deleted key, leaves killAfter for the clean-up.
func killTime(lost error, now time.Time, killAfter time.Duration) time.Time {
	var e *dibs.LostError
	if errors.As(lost, &e) && (e.Reason == dibs.ReasonRevoked || e.Reason == dibs.ReasonMissing) {
		return now.Add(killAfter)
	}
	return now
}

// stop asks the command to end, for a reason, and sets the time for its SIGKILL. With
// LossAction.Warn it only reports a loss.
func (s *supervisor) stop(reason error, killAt time.Time) {
	s.end.reason = reason
	overTime := errors.Is(reason, ErrMaxHold)
	if !overTime {
		s.report.Lost(reason)
	}
	if s.rules.OnLost.Warn && !overTime {
		return
	}
	s.end.killAt, s.child.killDescendants = killAt, true
	if overTime {
		s.child.signalDescendants(syscall.SIGTERM)
	} else {
		s.child.signalDescendants(s.rules.OnLost.Signal)
	}
	s.child.signalDescendants(syscall.SIGCONT) // a stopped process cannot handle the signal
	s.enforce()
}
