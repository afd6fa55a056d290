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

// The rules of a command that runs under a lock: the lock is given back when nothing of
// its process group is left, and if the lock is about to be lost, nothing that descends from
// it is left by then.
type rules struct {
	killAfter time.Duration // from being asked to end to being killed
	onLost    lossAction
	maxHold   time.Duration // zero: no limit
	ttl       time.Duration
}

// A run is a command under a lock.
type supervised struct {
	*app
	rules
	lease    *dibs.Lease
	child    *child
	watchdog *watchdogHandle
	tty      *tty // or nil
	begun    time.Time

	reason           error     // why it was asked to end, or was told of a loss
	killAt           time.Time // zero: not asked yet
	status           syscall.WaitStatus
	ended            time.Time // when the child had, zero: it runs
	leftoverReported bool      // that something was left running

	replies <-chan string // of the guard
	changes chan syscall.WaitStatus
}

// supervise runs a command while the lease lasts, and returns when nothing of it is left.
// err says why the command was asked to end, if it was.
func (a *app) supervise(lease *dibs.Lease, c command, r rules) (code int, err error) {
	t := foreground()
	if t != nil {
		defer t.close() // also if the command cannot be started: it may have had it
	}
	guard, child, err := c.start(t != nil && !t.inPipeline(), lease, r)
	if err != nil {
		return 0, err
	}
	if t != nil {
		t.command = child.pid
	}
	s := &supervised{app: a, rules: r, lease: lease, child: child, watchdog: guard, tty: t, begun: time.Now()}
	s.replies = guard.replies
	if a.json {
		a.event(event{Event: "started", Name: lease.Name(), PID: child.pid})
	}
	s.loop()
	guard.stop() // what is left now is on its own, whatever becomes of the lease
	return exitCodeOf(s.status), s.reason
}

// start starts a command under a guard, which knows the deadline of the lease before. A guard
// that was killed meanwhile is replaced by another one, a few times.
func (c command) start(terminal bool, lease *dibs.Lease, r rules) (*watchdogHandle, *child, error) {
	const tries = 3
	for try := 1; ; try++ {
		guard, err := c.watchdog.ready()
		if err != nil {
			return nil, nil, err
		}
		if !r.onLost.warn {
			guard.extend(lease.Deadline(), r.ttl)
		}
		child, err := guard.start(c, terminal)
		if !errors.Is(err, errWatchdogGone) || try == tries {
			return guard, child, err
		}
	}
}

func (r *supervised) loop() {
	const least, most = 5 * time.Millisecond, 250 * time.Millisecond
	ticks := time.NewTicker(min(max(r.ttl/20, least), most))
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
				ticks.Reset(least) // look for what it has left behind
			}
		case status := <-r.changes:
			r.childChanged(status)
		case <-lost:
			lost = nil
		case <-ticks.C:
		}
	}
}

// changed notes what has become of the child.
func (r *supervised) childChanged(status syscall.WaitStatus) {
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

// unguarded ends a command whose guard is dead: nobody could end it if dibs were killed, too.
// What it has started belongs to this process now, and so is found from here.
func (r *supervised) watchdogDied() {
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

// lend gives the foreground to a command that was stopped because it wants the terminal
// and has not got it: see tty.shared.
func (r *supervised) lendTerminal(s syscall.Signal) bool {
	if s != syscall.SIGTTIN && s != syscall.SIGTTOU || r.tty == nil || !r.tty.isForeground(r.tty.own) {
		return false
	}
	r.tty.setForeground(r.child.pid)
	r.child.signal(syscall.SIGCONT)
	return true
}

// suspend stops dibs with the command that ^Z has stopped, so that the shell goes on. The
// lease is not renewed then: when it is over the guard kills the command.
func (r *supervised) suspend() {
	if r.tty == nil {
		return
	}
	lent := r.tty.isForeground(r.child.pid)
	if lent {
		r.tty.setForeground(r.tty.own)
	}
	_ = syscall.Kill(0, syscall.SIGSTOP) // one may always
	r.waitUntilContinued()
	// In the foreground or not.
	if lent && r.tty.isForeground(r.tty.own) {
		r.tty.setForeground(r.child.pid)
	}
	r.child.signal(syscall.SIGCONT)
}

// continued waits until the shell has continued dibs. The stop reaches the threads one
// after the other: this one goes on for a moment, in which the shell has not taken the
// terminal, and the command must not be continued. The first process of a container is
// not stopped at all.
func (r *supervised) waitUntilContinued() {
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

// pass passes a signal on to the command.
func (r *supervised) forward(s os.Signal) {
	n, _ := s.(syscall.Signal)
	r.endForwarded = r.endForwarded || isTermination(n)
	r.child.signal(n)
}

// check asks the command to end, or kills it, when it is time.
func (r *supervised) enforce() {
	const patient = time.Second
	deadline, now := r.lease.Deadline(), time.Now()
	lost := r.lease.Err()
	if !r.onLost.warn {
		r.watchdog.extend(deadline, r.ttl)
	}
	switch {
	case r.ended.IsZero() || r.leftoverReported || now.Sub(r.ended) < patient:
	default:
		r.leftoverReported = true
		r.logf("the command has ended, and left something running in its process group %d: waiting for that", r.child.pid)
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

// errGuard is for a machine that gives dibs so little time that it has renewed the lock,
// and could not tell the guard.
var errWatchdogLate = fmt.Errorf("%w: the guard was not told in time of a renewal: with so short a TTL, or so busy a machine, take a longer --ttl", dibs.ErrLost)

var errWatchdogKilled = fmt.Errorf("%w: the guard was killed", dibs.ErrLost)

var errMaxHold = errors.New("--max-hold is over")

// lastMoment is when a command must be dead whose lease is lost. If it has expired, or
// was not renewed because this process was stopped, that is now; an operator who breaks
// it, or deletes its key, leaves the command the time to clean up.
func killTime(lost error, now time.Time, killAfter time.Duration) time.Time {
	var e *dibs.LostError
	if errors.As(lost, &e) && (e.Reason == dibs.ReasonRevoked || e.Reason == dibs.ReasonTaken) {
		return now.Add(killAfter)
	}
	return now
}

// stop asks the command to end, for a reason; or only tells it.
func (r *supervised) stop(reason error, killAt time.Time) {
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
	r.child.signalDescendants(syscall.SIGCONT) // who is stopped cannot end
	r.enforce()
}

func (r *supervised) reportLoss(reason error) {
	if r.json {
		r.event(event{Event: "lost", Name: r.lease.Name(), Store: r.monitor.location, Error: errorText(reason)})
	}
	if r.onLost.warn {
		r.logf("%s; the command goes on", errorText(reason))
	}
}

// A loss is what happens to a command whose lock is lost.
type lossAction struct {
	signal syscall.Signal
	warn   bool // nothing: it goes on, and dibs says so
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
