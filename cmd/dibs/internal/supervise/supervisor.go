package supervise

import (
	"errors"
	"os"
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
	tty      *tty // or nil
	end      ending
	exit     exit

	replies  <-chan string           // of the watchdog
	orphaned chan syscall.WaitStatus // of a command whose watchdog is dead
}

// A child is the running command. It is a child of the watchdog and leads a process
// group.
type child struct {
	tree
	begun           time.Time
	killDescendants bool // all descendants must end, not only the process group
}

// An ending is the end of a command by the supervisor.
type ending struct {
	reason error     // why the command was asked to end, or its loss if that is only reported
	killAt time.Time // zero: not asked to end
}

// An exit is the end of the child. Processes of its group may go on.
type exit struct {
	status           syscall.WaitStatus
	at               time.Time // zero: it runs
	leftoverReported bool      // processes left running were reported
}

func (s *supervisor) loop() {
	const least, most = 5 * time.Millisecond, 250 * time.Millisecond
	slowest := min(max(s.rules.TTL/20, least), most)
	every := slowest
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	lost := s.lease.Context().Done()
	for s.exit.at.IsZero() || !s.child.gone(s.child.killDescendants) {
		s.enforce()
		select {
		case sig := <-s.signals:
			s.forward(sig)
		case answer, alive := <-s.replies:
			if !alive {
				s.watchdogDied()
				continue
			}
			if n, err := strconv.Atoi(strings.TrimPrefix(answer, "changed ")); err == nil {
				s.childChanged(syscall.WaitStatus(n))
				every = least // check often for processes that are left
				ticks.Reset(every)
			}
		case status := <-s.orphaned:
			s.childChanged(status)
		case <-lost:
			lost = nil
		case <-ticks.C:
			if every < slowest { // they may run for hours, and each check takes milliseconds
				every = min(2*every, slowest)
				ticks.Reset(every)
			}
		}
	}
}

// childChanged handles a new state of the child: stopped or exited.
func (s *supervisor) childChanged(status syscall.WaitStatus) {
	if status.Stopped() {
		if !s.lendTerminal(status.StopSignal()) {
			s.suspend()
		}
		return
	}
	s.exit.status, s.exit.at = status, time.Now()
	if s.end.reason == nil && status.Signaled() && status.Signal() == syscall.SIGKILL && s.watchdog.expired() {
		s.stop(ErrLate, s.exit.at)
	}
}

// watchdogDied ends a command whose watchdog is dead: if dibs were killed as well,
// nothing would end the command. This process is now the subreaper of the descendants, so
// it can find them.
func (s *supervisor) watchdogDied() {
	s.replies = nil
	s.child.root, s.child.otherChildren = os.Getpid(), s.watchdog.otherChildren
	if s.exit.at.IsZero() {
		s.orphaned = make(chan syscall.WaitStatus, 1)
		go func() {
			<-s.watchdog.reaped
			s.orphaned <- waitOrphan(s.child.pid)
		}()
	}
	if s.end.reason == nil {
		s.stop(errWatchdogKilled, time.Now())
	}
}

// lendTerminal gives the foreground to a command that was stopped because it used the
// terminal in the background. It reports whether it did. See tty.inPipeline.
func (s *supervisor) lendTerminal(stop syscall.Signal) bool {
	if stop != syscall.SIGTTIN && stop != syscall.SIGTTOU || s.tty == nil || !s.tty.isForeground(s.tty.own) {
		return false
	}
	s.tty.setForeground(s.child.pid)
	s.child.signal(syscall.SIGCONT)
	return true
}

// suspend stops dibs after ^Z has stopped the command, so that the shell continues. The
// lease is not renewed meanwhile: when it expires, the watchdog kills the command.
func (s *supervisor) suspend() {
	if s.tty == nil {
		return
	}
	foreground := s.tty.isForeground(s.child.pid)
	if foreground {
		s.tty.setForeground(s.tty.own)
	}
	_ = syscall.Kill(0, syscall.SIGSTOP) // always permitted
	s.waitUntilContinued()
	// The shell may have continued dibs in the background.
	if foreground && s.tty.isForeground(s.tty.own) {
		s.tty.setForeground(s.child.pid)
	}
	s.child.signal(syscall.SIGCONT)
}

// waitUntilContinued waits until the shell has continued dibs, for 1 s at most. SIGSTOP
// reaches the threads one by one, so this thread runs on for a moment. The shell has not
// taken the terminal by then, and the command must not be continued yet. The first
// process of a container is not stopped at all, hence the limit.
func (s *supervisor) waitUntilContinued() {
	limit := time.After(time.Second)
	for {
		select {
		case sig := <-s.signals:
			if sig == syscall.SIGCONT {
				return
			}
			s.forward(sig)
		case <-limit:
			return
		}
	}
}

// forward sends a signal to the command.
func (s *supervisor) forward(sig os.Signal) {
	n, _ := sig.(syscall.Signal)
	s.report.Forwarded(n)
	s.child.signal(n)
}

// enforce asks the command to end, or kills it, when that is due. The reasons are a loss
// of the lease, a deadline without a renewal, and Rules.MaxHold.
func (s *supervisor) enforce() {
	const leftoverDelay = time.Second
	deadline, now := s.lease.Deadline(), time.Now()
	lost := s.lease.Err()
	if !s.rules.OnLost.Warn {
		s.watchdog.extend(deadline, s.rules.TTL)
	}
	if !s.exit.at.IsZero() && !s.exit.leftoverReported && now.Sub(s.exit.at) >= leftoverDelay {
		s.exit.leftoverReported = true
		s.report.Leftover(s.child.pid)
	}
	switch {
	case s.end.reason != nil && (s.end.killAt.IsZero() || now.Before(s.end.killAt)):
	case s.end.reason != nil:
		s.child.kill()
	case lost != nil:
		s.stop(lost, killTime(lost, now, s.rules.KillAfter))
	case s.rules.MaxHold > 0 && now.Sub(s.child.begun) >= s.rules.MaxHold:
		s.stop(ErrMaxHold, now.Add(s.rules.KillAfter))
	case !s.rules.OnLost.Warn && deadline.Sub(now) <= s.rules.KillAfter:
		s.stop(s.notRenewed(), deadline)
	}
}

// killTime returns the time at which a command must be dead after the loss of its lease.
// A lease that has expired, for example because this process was stopped, leaves no time.
// A lease that was revoked, or whose key was deleted, leaves killAfter for the clean-up.
func killTime(lost error, now time.Time, killAfter time.Duration) time.Time {
	var e *dibs.LostError
	if errors.As(lost, &e) && (e.Reason == dibs.ReasonRevoked || e.Reason == dibs.ReasonTaken) {
		return now.Add(killAfter)
	}
	return now
}

// stop asks the command to end, for a reason, and sets the time of its SIGKILL. With
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
