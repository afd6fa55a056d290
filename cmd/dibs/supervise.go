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
	onLost    loss
	maxHold   time.Duration // zero: no limit
	ttl       time.Duration
}

// A run is a command under a lock.
type running struct {
	*app
	rules
	lease *dibs.Lease
	child *child
	guard *guardian
	tty   *tty // or nil
	begun time.Time

	reason error     // why it was asked to end, or was told of a loss
	killAt time.Time // zero: not asked yet
	status syscall.WaitStatus
	ended  time.Time // when the child had, zero: it runs
	told   bool      // that something was left running

	answers <-chan string // of the guard
	changes chan syscall.WaitStatus
}

// supervise runs a command while the lease lasts, and returns when nothing of it is left.
// err says why the command was asked to end, if it was.
func (a *app) supervise(lease *dibs.Lease, c command, r rules) (code int, err error) {
	t := foreground()
	if t != nil {
		defer t.close() // also if the command cannot be started: it may have had it
	}
	guard, child, err := c.start(t != nil && !t.shared(), lease, r)
	if err != nil {
		return 0, err
	}
	if t != nil {
		t.lent = child.pid
	}
	s := &running{app: a, rules: r, lease: lease, child: child, guard: guard, tty: t, begun: time.Now()}
	s.answers = guard.answers
	if a.json {
		a.event(event{Event: "started", Name: lease.Name(), PID: child.pid})
	}
	s.loop()
	guard.end() // what is left now is on its own, whatever becomes of the lease
	return codeOfStatus(s.status), s.reason
}

// start starts a command under a guard, which knows the deadline of the lease before. A guard
// that was killed meanwhile is replaced by another one, a few times.
func (c command) start(terminal bool, lease *dibs.Lease, r rules) (*guardian, *child, error) {
	const tries = 3
	for try := 1; ; try++ {
		guard, err := c.guard.ready()
		if err != nil {
			return nil, nil, err
		}
		if !r.onLost.warn {
			guard.extend(lease.Deadline(), r.ttl)
		}
		child, err := guard.start(c, terminal)
		if !errors.Is(err, errNotStarted) || try == tries {
			return guard, child, err
		}
	}
}

func (r *running) loop() {
	const least, most = 5 * time.Millisecond, 250 * time.Millisecond
	slowest := min(max(r.ttl/20, least), most)
	every := slowest
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	lost := r.lease.Context().Done()
	for r.ended.IsZero() || !r.child.gone(r.child.all) {
		r.check()
		select {
		case s := <-r.caught:
			r.pass(s)
		case answer, alive := <-r.answers:
			if !alive {
				r.unguarded()
				continue
			}
			if n, err := strconv.Atoi(strings.TrimPrefix(answer, "changed ")); err == nil {
				r.changed(syscall.WaitStatus(n))
				every = least // look for what it has left behind
				ticks.Reset(every)
			}
		case status := <-r.changes:
			r.changed(status)
		case <-lost:
			lost = nil
		case <-ticks.C:
			if every < slowest { // what is left may run for hours, and to look takes milliseconds
				every = min(2*every, slowest)
				ticks.Reset(every)
			}
		}
	}
}

// changed notes what has become of the child.
func (r *running) changed(status syscall.WaitStatus) {
	if status.Stopped() {
		if !r.lend(status.StopSignal()) {
			r.suspend()
		}
		return
	}
	r.status, r.ended = status, time.Now()
	if r.reason == nil && status.Signaled() && status.Signal() == syscall.SIGKILL && r.guard.over() {
		r.stop(errGuard, r.ended)
	}
}

// unguarded ends a command whose guard is dead: nobody could end it if dibs were killed, too.
// What it has started belongs to this process now, and so is found from here.
func (r *running) unguarded() {
	r.answers = nil
	r.child.root, r.child.apart = os.Getpid(), r.guard.apart
	if r.ended.IsZero() {
		r.changes = make(chan syscall.WaitStatus, 1)
		go func() {
			<-r.guard.reaped
			r.changes <- orphaned(r.child.pid)
		}()
	}
	if r.reason == nil {
		r.stop(errUnguarded, time.Now())
	}
}

// lend gives the foreground to a command that was stopped because it wants the terminal
// and has not got it: see tty.shared.
func (r *running) lend(s syscall.Signal) bool {
	if s != syscall.SIGTTIN && s != syscall.SIGTTOU || r.tty == nil || !r.tty.has(r.tty.own) {
		return false
	}
	r.tty.give(r.child.pid)
	r.child.signal(syscall.SIGCONT)
	return true
}

// suspend stops dibs with the command that ^Z has stopped, so that the shell goes on. The
// lease is not renewed then: when it is over the guard kills the command.
func (r *running) suspend() {
	if r.tty == nil {
		return
	}
	lent := r.tty.has(r.child.pid)
	if lent {
		r.tty.give(r.tty.own)
	}
	_ = syscall.Kill(0, syscall.SIGSTOP) // one may always
	r.continued()
	// In the foreground or not.
	if lent && r.tty.has(r.tty.own) {
		r.tty.give(r.child.pid)
	}
	r.child.signal(syscall.SIGCONT)
}

// continued waits until the shell has continued dibs. The stop reaches the threads one
// after the other: this one goes on for a moment, in which the shell has not taken the
// terminal, and the command must not be continued. The first process of a container is
// not stopped at all.
func (r *running) continued() {
	limit := time.After(time.Second)
	for {
		select {
		case s := <-r.caught:
			if s == syscall.SIGCONT {
				return
			}
			r.pass(s)
		case <-limit:
			return
		}
	}
}

// pass passes a signal on to the command.
func (r *running) pass(s os.Signal) {
	n, _ := s.(syscall.Signal)
	r.ending = r.ending || ends(n)
	r.child.signal(n)
}

// check asks the command to end, or kills it, when it is time.
func (r *running) check() {
	const patient = time.Second
	deadline, now := r.lease.Deadline(), time.Now()
	lost := r.lease.Err()
	if !r.onLost.warn {
		r.guard.extend(deadline, r.ttl)
	}
	switch {
	case r.ended.IsZero() || r.told || now.Sub(r.ended) < patient:
	default:
		r.told = true
		r.say("the command has ended, and left something running in its process group %d: waiting for that", r.child.pid)
	}
	switch {
	case r.reason != nil && (r.killAt.IsZero() || now.Before(r.killAt)):
	case r.reason != nil:
		r.child.kill()
	case lost != nil:
		r.stop(lost, lastMoment(lost, now, r.killAfter))
	case r.maxHold > 0 && now.Sub(r.begun) >= r.maxHold:
		r.stop(errMaxHold, now.Add(r.killAfter))
	case !r.onLost.warn && deadline.Sub(now) <= r.killAfter:
		r.stop(r.store.notRenewed(r.lease), deadline)
	}
}

// errGuard is for a machine that gives dibs so little time that it has renewed the lock,
// and could not tell the guard.
var errGuard = fmt.Errorf("%w: the guard was not told in time of a renewal: with so short a TTL, or so busy a machine, take a longer --ttl", dibs.ErrLost)

var errUnguarded = fmt.Errorf("%w: the guard was killed", dibs.ErrLost)

var errMaxHold = errors.New("--max-hold is over")

// lastMoment is when a command must be dead whose lease is lost. If it has expired, or
// was not renewed because this process was stopped, that is now; an operator who breaks
// it, or deletes its key, leaves the command the time to clean up.
func lastMoment(lost error, now time.Time, killAfter time.Duration) time.Time {
	var e *dibs.LostError
	if errors.As(lost, &e) && (e.Why == dibs.Revoked || e.Why == dibs.Taken) {
		return now.Add(killAfter)
	}
	return now
}

// stop asks the command to end, for a reason; or only tells it.
func (r *running) stop(reason error, killAt time.Time) {
	r.reason = reason
	overTime := errors.Is(reason, errMaxHold)
	if !overTime {
		r.lostTold(reason)
	}
	if r.onLost.warn && !overTime {
		return
	}
	r.killAt, r.child.all = killAt, true
	if overTime {
		r.child.signalAll(syscall.SIGTERM)
	} else {
		r.child.signalAll(r.onLost.signal)
	}
	r.child.signalAll(syscall.SIGCONT) // who is stopped cannot end
	r.check()
}

func (r *running) lostTold(reason error) {
	if r.json {
		r.event(event{Event: "lost", Name: r.lease.Name(), Store: r.store.where, Error: clean(reason)})
	}
	if r.onLost.warn {
		r.say("%s; the command goes on", clean(reason))
	}
}

// A loss is what happens to a command whose lock is lost.
type loss struct {
	signal syscall.Signal
	warn   bool // nothing: it goes on, and dibs says so
}

// String implements pflag.Value.
func (l *loss) String() string {
	switch {
	case l.warn:
		return "warn"
	case l.signal == 0:
		return ""
	}
	return signalName(l.signal)
}

// Type implements pflag.Value.
func (l *loss) Type() string { return "signal" }

// Set implements pflag.Value.
func (l *loss) Set(text string) error {
	if text == "warn" {
		*l = loss{warn: true}
		return nil
	}
	s := signalNumber(text)
	if s == 0 {
		return errors.New("want a signal, such as TERM or KILL, or warn")
	}
	*l = loss{signal: s}
	return nil
}
