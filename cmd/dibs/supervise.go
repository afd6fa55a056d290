package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dibslock/dibs"
)

// rules are the time limits of a command under a lock. dibs releases the lock when no
// process of the command's group is left. If the lock is about to be lost, all
// descendants of the command are dead before that.
type rules struct {
	killAfter time.Duration // from the signal that asks the command to end to SIGKILL
	onLost    lossAction
	maxHold   time.Duration // zero: no limit
	ttl       time.Duration
}

// A supervisor starts a command under a lock, forwards signals to it, and ends it if the
// lock is about to be lost. It holds the lock, and its watchdog is the command's parent.
type supervisor struct {
	*app
	rules
	lease    *dibs.Lease
	child    *child
	watchdog *watchdogHandle
	tty      *tty // or nil
	begun    time.Time

	reason           error     // why the command was asked to end, or its loss with --on-lost warn
	killAt           time.Time // zero: not asked to end
	status           syscall.WaitStatus
	ended            time.Time // when the child exited; zero: it runs
	leftoverReported bool      // processes left running were reported

	replies <-chan string // of the watchdog
	changes chan syscall.WaitStatus
}

// supervise runs a command under a lease and returns when none of its processes is left.
// err is the reason why dibs asked the command to end, or nil.
func (a *app) supervise(lease *dibs.Lease, c command, r rules) (code int, err error) {
	t := foreground()
	if t != nil {
		defer t.close() // also if the start fails: the command may have had the foreground
	}
	watchdog, child, err := c.start(t != nil && !t.inPipeline(), lease, r)
	if err != nil {
		return 0, err
	}
	if t != nil {
		t.command = child.pid
	}
	s := &supervisor{app: a, rules: r, lease: lease, child: child, watchdog: watchdog, tty: t, begun: time.Now()}
	s.replies = watchdog.replies
	if a.json {
		a.event(event{Event: "started", Name: lease.Name(), PID: child.pid})
	}
	s.loop()
	watchdog.stop() // remaining daemons run on, even if the lease is lost later
	return exitCodeOf(s.status), s.reason
}

// start starts a command under a watchdog. The watchdog receives the deadline of the
// lease first. If the watchdog was killed, start tries another one, three times in all.
func (c command) start(terminal bool, lease *dibs.Lease, r rules) (*watchdogHandle, *child, error) {
	const tries = 3
	for try := 1; ; try++ {
		watchdog, err := c.watchdog.ready()
		if err != nil {
			return nil, nil, err
		}
		if !r.onLost.warn {
			watchdog.extend(lease.Deadline(), r.ttl)
		}
		child, err := watchdog.start(c, terminal)
		if !errors.Is(err, errWatchdogGone) || try == tries {
			return watchdog, child, err
		}
	}
}

func (r *supervisor) loop() {
	const least, most = 5 * time.Millisecond, 250 * time.Millisecond
	slowest := min(max(r.ttl/20, least), most)
	every := slowest
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	lost := r.lease.Context().Done()
	for r.ended.IsZero() || !r.child.gone(r.child.killDescendants) {
		r.enforce()
		select {
		case s := <-r.caught:
			r.forward(s)
		case answer, alive := <-r.replies:
			if !alive {
				r.watchdogDied()
				continue
			}
			if n, err := strconv.Atoi(strings.TrimPrefix(answer, "changed ")); err == nil {
				r.childChanged(syscall.WaitStatus(n))
				every = least // check often for processes that are left
				ticks.Reset(every)
			}
		case status := <-r.changes:
			r.childChanged(status)
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
func (r *supervisor) childChanged(status syscall.WaitStatus) {
	if status.Stopped() {
		if !r.lendTerminal(status.StopSignal()) {
			r.suspend()
		}
		return
	}
	r.status, r.ended = status, time.Now()
	if r.reason == nil && status.Signaled() && status.Signal() == syscall.SIGKILL && r.watchdog.expired() {
		r.stop(errWatchdogLate, r.ended)
	}
}

// watchdogDied ends a command whose watchdog is dead: if dibs were killed as well,
// nothing would end the command. This process is now the subreaper of the descendants, so
// it can find them.
func (r *supervisor) watchdogDied() {
	r.replies = nil
	r.child.root, r.child.otherChildren = os.Getpid(), r.watchdog.otherChildren
	if r.ended.IsZero() {
		r.changes = make(chan syscall.WaitStatus, 1)
		go func() {
			<-r.watchdog.reaped
			r.changes <- waitOrphan(r.child.pid)
		}()
	}
	if r.reason == nil {
		r.stop(errWatchdogKilled, time.Now())
	}
}

// lendTerminal gives the foreground to a command that was stopped because it used the
// terminal in the background. It reports whether it did. See tty.inPipeline.
func (r *supervisor) lendTerminal(s syscall.Signal) bool {
	if s != syscall.SIGTTIN && s != syscall.SIGTTOU || r.tty == nil || !r.tty.isForeground(r.tty.own) {
		return false
	}
	r.tty.setForeground(r.child.pid)
	r.child.signal(syscall.SIGCONT)
	return true
}

// suspend stops dibs after ^Z has stopped the command, so that the shell continues. The
// lease is not renewed meanwhile: when it expires, the watchdog kills the command.
func (r *supervisor) suspend() {
	if r.tty == nil {
		return
	}
	foreground := r.tty.isForeground(r.child.pid)
	if foreground {
		r.tty.setForeground(r.tty.own)
	}
	_ = syscall.Kill(0, syscall.SIGSTOP) // always permitted
	r.waitUntilContinued()
	// The shell may have continued dibs in the background.
	if foreground && r.tty.isForeground(r.tty.own) {
		r.tty.setForeground(r.child.pid)
	}
	r.child.signal(syscall.SIGCONT)
}

// waitUntilContinued waits until the shell has continued dibs, for 1 s at most. SIGSTOP
// reaches the threads one by one, so this thread runs on for a moment. The shell has not
// taken the terminal by then, and the command must not be continued yet. The first
// process of a container is not stopped at all, hence the limit.
func (r *supervisor) waitUntilContinued() {
	limit := time.After(time.Second)
	for {
		select {
		case s := <-r.caught:
			if s == syscall.SIGCONT {
				return
			}
			r.forward(s)
		case <-limit:
			return
		}
	}
}

// forward sends a signal to the command.
func (r *supervisor) forward(s os.Signal) {
	n, _ := s.(syscall.Signal)
	r.endForwarded = r.endForwarded || isTermination(n)
	r.child.signal(n)
}

// enforce asks the command to end, or kills it, when that is due. The reasons are a loss
// of the lease, a deadline without a renewal, and --max-hold.
func (r *supervisor) enforce() {
	const leftoverDelay = time.Second
	deadline, now := r.lease.Deadline(), time.Now()
	lost := r.lease.Err()
	if !r.onLost.warn {
		r.watchdog.extend(deadline, r.ttl)
	}
	switch {
	case r.ended.IsZero() || r.leftoverReported || now.Sub(r.ended) < leftoverDelay:
	default:
		r.leftoverReported = true
		r.logf("the command has ended, but its process group %d has running processes: waiting for them", r.child.pid)
	}
	switch {
	case r.reason != nil && (r.killAt.IsZero() || now.Before(r.killAt)):
	case r.reason != nil:
		r.child.kill()
	case lost != nil:
		r.stop(lost, killTime(lost, now, r.killAfter))
	case r.maxHold > 0 && now.Sub(r.begun) >= r.maxHold:
		r.stop(errMaxHold, now.Add(r.killAfter))
	case !r.onLost.warn && deadline.Sub(now) <= r.killAfter:
		r.stop(r.monitor.notRenewedError(r.lease), deadline)
	}
}

// errWatchdogLate is the loss on a busy machine: dibs has renewed the lock, but could not
// extend the watchdog in time.
var errWatchdogLate = fmt.Errorf("%w: the renewal reached the watchdog process too late: the machine is busy or the TTL is short; use a longer --ttl", dibs.ErrLost)

var errWatchdogKilled = fmt.Errorf("%w: the watchdog process was killed", dibs.ErrLost)

var errMaxHold = errors.New("the command ran longer than --max-hold")

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
// --on-lost warn it only reports a loss.
func (r *supervisor) stop(reason error, killAt time.Time) {
	r.reason = reason
	overTime := errors.Is(reason, errMaxHold)
	if !overTime {
		r.reportLoss(reason)
	}
	if r.onLost.warn && !overTime {
		return
	}
	r.killAt, r.child.killDescendants = killAt, true
	if overTime {
		r.child.signalDescendants(syscall.SIGTERM)
	} else {
		r.child.signalDescendants(r.onLost.signal)
	}
	r.child.signalDescendants(syscall.SIGCONT) // a stopped process cannot handle the signal
	r.enforce()
}

func (r *supervisor) reportLoss(reason error) {
	if r.json {
		r.event(event{Event: "lost", Name: r.lease.Name(), Store: r.monitor.location, Error: errorText(reason)})
	}
	if r.onLost.warn {
		r.logf("%s; the command goes on", errorText(reason))
	}
}

// A lossAction is the value of --on-lost: the signal for a command whose lock is lost.
type lossAction struct {
	signal syscall.Signal
	warn   bool // no signal: dibs prints a warning and the command goes on
}

// String implements pflag.Value.
func (l *lossAction) String() string {
	switch {
	case l.warn:
		return "warn"
	case l.signal == 0:
		return ""
	}
	return signalName(l.signal)
}

// Type implements pflag.Value.
func (l *lossAction) Type() string { return "signal" }

// Set implements pflag.Value.
func (l *lossAction) Set(text string) error {
	if text == "warn" {
		*l = lossAction{warn: true}
		return nil
	}
	s := signalNumber(text)
	if s == 0 {
		return errors.New("want a signal, such as TERM or KILL, or warn")
	}
	*l = lossAction{signal: s}
	return nil
}
