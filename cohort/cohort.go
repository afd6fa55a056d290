// Package cohort lets all calls for a name in a process share a single lease in the store. It is
// for names wanted by many goroutines in a few processes: Unlock passes the lock to the Cohort's
// next call without any request.
//
//	hot := cohort.New(locks.Mutex("counter"), cohort.IdleHold(100*time.Millisecond))
//	err := hot.Do(ctx, func(ctx context.Context) error {
//		fence, err := dibs.Fence(ctx)
//		if err != nil {
//			return err
//		}
//		return counter.Add(ctx, 1, fence)
//	})
//
// A process should make a single Cohort for each name, and keep it. It works with every store,
// because it uses only dibs' public API.
package cohort

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dibslock/dibs"
)

// A Cohort is a group of calls in a process that lock the same name. The calls share a single lease
// of a dibs.Mutex in the store, the store lease. Each call gets a local Lease in turn, first come,
// first served. Two Cohorts for the same name exclude each other through the store.
//
// A pass is an Unlock that gives the lock to the Cohort's next call. While another process waits,
// at most Passes passes follow each other. Then the store lease is released, and the other process
// gets the lock. So a waiter in another process waits for at most Passes + 1 critical sections from
// each process ahead: see docs/guarantees.md. While no other process waits, passes continue, but
// the store lease is released at least once a second.
//
// The hooks (dibs.Hooks) of the Mutex and its Client report on the store lease, not on the local
// Leases. They run in the Cohort's goroutines. Their context has the values from one of the calls'
// contexts.
//
// A Cohort without a store lease has no goroutine. A Cohort needs no Close: Client.Close ends the
// Cohort's leases and calls, and Client.Shutdown waits for the leases. A Cohort is safe for
// concurrent use.
type Cohort struct {
	m *dibs.Mutex
	settings
	base  dibs.CallSettings // without options of a call
	err   error             // the mistake in New's arguments
	ended error             // the error of a lease that was unlocked

	mu        sync.Mutex
	callers   callerList   // waiting, in order
	tenure    *tenure      // with the store lease; nil if there is none
	holder    *caller      // it was granted the lock; nil if nobody was
	acquiring *acquisition // acquires the next store lease; nil if there is none
	releasing int          // store leases being released
	failure   error        // from the last acquisition; nil if it succeeded
	pause     time.Duration
	idle      idleTimer
}

const (
	// DefaultPasses is the default for Passes.
	DefaultPasses = 32

	// MaxPasses is the largest value for Passes.
	MaxPasses = 1_000_000
)

// An Option configures a Cohort made by New. The zero value changes nothing.
type Option struct{ apply func(*settings) }

// settings are changed by options.
type settings struct {
	passes   int
	idleHold time.Duration
}

// Passes limits how many times in a row Unlock gives the lock to the Cohort's next call while
// another process waits. The limit is 1 to MaxPasses; the default is DefaultPasses.
func Passes(n int) Option { return Option{func(s *settings) { s.passes = n }} }

// IdleHold keeps the store lease for this time after the last Unlock, so that the next call needs
// no request. If another process waits for the name, the store lease is released at once. A TryLock
// in another process does not wait, so it finds the name busy. A crash blocks the name for a TTL.
// The time is 1 ms to a third of the TTL. Zero, the default, releases the store lease with the last
// Unlock.
func IdleHold(d time.Duration) Option { return Option{func(s *settings) { s.idleHold = d }} }

// longestTenure is how long a Cohort keeps its store lease while it is in use, or for IdleHold if that
// is longer. Clients of other libraries are seen by nobody.
const longestTenure = time.Second

// New returns a Cohort whose store leases come from m. It does no I/O.
//
// If m is nil or an option's value is out of range, all methods return ErrInvalid. They also return
// ErrInvalid if the Mutex or its Client uses the option MinHold, NoRenew, Attempts or Reentrant:
// with these options each call needs its own lease in the store.
func New(m *dibs.Mutex, options ...Option) *Cohort {
	c := &Cohort{m: m, settings: settings{passes: DefaultPasses}}
	for _, o := range options {
		if o.apply != nil {
			o.apply(&c.settings)
		}
	}
	if m == nil {
		c.err = invalid("nil Mutex given to New")
		return c
	}
	c.base, c.err = m.CallSettings(context.Background())
	if c.err == nil {
		c.err = errors.Join(c.checkSettings(), ownLease(c.base))
	}
	c.ended = fmt.Errorf("%w: %q", dibs.ErrReleased, c.base.Name)
	return c
}

func (c *Cohort) checkSettings() error {
	switch {
	case c.passes < 1 || c.passes > MaxPasses:
		return invalid("Passes(%d) of %q is not within 1 to %d", c.passes, c.base.Name, MaxPasses)
	case c.idleHold != 0 && c.idleHold < time.Millisecond:
		return invalid("IdleHold(%v) of %q is negative or below 1ms; is the unit missing?", c.idleHold, c.base.Name)
	case c.idleHold > c.base.TTL/3:
		return invalid("IdleHold(%v) of %q is not within 0 to a third of the TTL %v", c.idleHold, c.base.Name, c.base.TTL)
	}
	return nil
}

// Lock acquires the lock, like Mutex.Lock. It accepts the options Wait, Timeout, MaxHold and Label;
// any other option is ErrInvalid. Wait(0) tries once.
//
//   - Wait and Timeout limit this call; Timeout also limits the Unlock of its Lease. They do not
//     limit the requests for the store lease. These run in the background with the Mutex's Timeout,
//     and continue while another call waits.
//   - MaxHold ends this call's Lease after that time. Then the store lease is released, and no
//     other call uses it.
//   - If the Label differs from the store lease's label, the call waits for a new store lease.
//
// Lock returns ErrUnavailable if the store did not reply within Timeout. After Lock found that
// another owner holds the lock, an outage of the store does not end the call. The call then returns
// ErrBusy when Wait is over. BusyError.Ahead may count calls that no longer wait.
//
// Lock returns ErrReentrant if ctx comes from a held Lease of this Cohort. If you call the Mutex's
// own Lock with such a ctx, the call waits until the store lease ends.
func (c *Cohort) Lock(ctx context.Context, options ...dibs.Option) (*Lease, error) {
	q, err := c.newCaller(ctx, options)
	if err != nil {
		return nil, err
	}
	return q.acquire()
}

// Do runs fn while holding the lock, like Mutex.Do. fn's context ends with ctx, when the lease is
// lost, or when fn returns. In fn, dibs.Fence and dibs.FenceOf return the Lease's fence. The
// context carries no dibs.Lease. So dibs.LeaseOf, Client.Holds and a database store's Guard find no
// lease in it.
func (c *Cohort) Do(ctx context.Context, fn func(ctx context.Context) error, options ...dibs.Option) error {
	var l *Lease
	err := invalid("nil function")
	if fn != nil {
		l, err = c.Lock(ctx, options...)
	}
	if err != nil {
		return &dibs.DoError{Name: c.name(), Lock: err}
	}
	work, unlocked := l.run(ctx, fn)
	if work == nil && unlocked == nil {
		return nil
	}
	return &dibs.DoError{Name: c.name(), Ran: true, Work: work, Lock: unlocked}
}

// run calls fn with the context of the lease, and then unlocks it. It returns both errors.
func (l *Lease) run(ctx context.Context, fn func(ctx context.Context) error) (work, unlocked error) {
	defer func() { unlocked = l.Unlock() }() // also if fn panics
	return fn(l.derive(ctx)), nil
}

// name returns the lock's name, or "".
func (c *Cohort) name() string {
	if c == nil {
		return ""
	}
	return c.base.Name
}

var _ dibs.Doer = (*Cohort)(nil)

// newCaller returns a call, unless its context or its options are rejected.
func (c *Cohort) newCaller(ctx context.Context, options []dibs.Option) (*caller, error) {
	if c == nil || c.m == nil && c.err == nil {
		return nil, errNoCohort
	}
	if c.err != nil {
		return nil, c.err
	}
	set, err := c.m.CallSettings(ctx, options...)
	if err != nil {
		return nil, err
	}
	if err := c.check(set); err != nil {
		return nil, err
	}
	if outer, ok := ctx.Value(heldKey{c}).(*Lease); ok && outer.Err() == nil {
		return nil, fmt.Errorf("%w: %q", dibs.ErrReentrant, set.Name)
	}
	return newCaller(ctx, c, set), nil
}

// check rejects options that concern a single lease in the store.
func (c *Cohort) check(set dibs.CallSettings) error {
	switch {
	case set.Token != "":
		return invalid("OwnerToken given to a call on %q: the calls of a Cohort share an owner token; give it to a call of the Mutex", set.Name)
	case set.TTL != c.base.TTL:
		return invalid("TTL given to a call on %q: the calls of a Cohort share a lease; give it to the Mutex", set.Name)
	case set.Observed:
		return invalid("Observe given to a call on %q: hooks report on the lease of the Cohort; give them to the Mutex", set.Name)
	}
	return ownLease(set)
}

// ownLease rejects the options with which a call needs its own lease.
func ownLease(set dibs.CallSettings) error {
	switch {
	case set.MinHold > 0:
		return ownLeaseError("MinHold", set.Name)
	case set.NoRenew:
		return ownLeaseError("NoRenew", set.Name)
	case set.Attempts > 0:
		return ownLeaseError("Attempts", set.Name)
	case set.Reentrant:
		return ownLeaseError("Reentrant", set.Name)
	}
	return nil
}

func ownLeaseError(option, name string) error {
	return invalid("%s of %q: the calls of a Cohort share a lease; use it with a Mutex that has no Cohort", option, name)
}

var errNoCohort = invalid("the Cohort is nil or a zero value: make it with cohort.New")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: cohort: "+format, append([]any{dibs.ErrInvalid}, args...)...)
}

// change changes the cohort, and then advances it.
func (c *Cohort) change(do func()) {
	c.mu.Lock()
	do()
	release := c.advance(time.Now())
	c.mu.Unlock()
	c.releaseLater(release)
}

// advance does what is due after each change: it grants the lock to the next caller, asks for the
// store lease or for fences, or keeps the idle store lease. That lease may be lost already: the
// caller that is granted the lock finds out. advance returns a tenure whose store lease must be
// released, or nil. The lock is held.
func (c *Cohort) advance(now time.Time) (release *tenure) {
	t, next := c.tenure, c.callers.first
	switch {
	case t == nil:
		if next != nil && c.acquiring == nil && c.releasing == 0 {
			c.startAcquisition(next)
		}
	case c.holder != nil:
		if next != nil {
			c.reserveFences(t)
		}
	case c.mustRelease(t, now, next):
		return c.endTenure()
	case next == nil:
		c.holdIdle(now)
	case t.left == 0: // until the store has said whether another process waits
	case t.fences.left() > 0:
		c.grant(next, t)
	default:
		c.reserveFences(t)
	}
	return nil
}

// mustRelease reports whether a store lease that nobody holds must be released, and not be passed
// to the next caller, which can be nil.
func (c *Cohort) mustRelease(t *tenure, now time.Time, next *caller) bool {
	switch {
	case next == nil && (t.others == somebody || c.idleHold == 0 || isClosed(c.base.Closing)):
		return true
	case next != nil && next.label != t.label:
		return true
	case t.exhausted && t.fences.left() == 0, now.Sub(t.since) >= max(longestTenure, c.idleHold):
		return true
	case t.others == nobody:
		t.left = c.passes
		return false
	}
	return t.left == 0 && next != nil && t.others != unanswered
}

// grant makes a caller the holder. A store lease's first local lease does not count as a pass.
func (c *Cohort) grant(next *caller, t *tenure) {
	c.callers.remove(next)
	if t.served > 0 {
		t.left--
	}
	t.served++
	c.holder = next
	next.lease.tenure, next.lease.fence = t, t.fences.pop()
	next.signal()
	c.recordContention()
	if c.callers.first != nil || c.idleHold > 0 {
		c.reserveFences(t)
	}
	if c.callers.first != nil && !t.contended {
		c.watchOthers(t)
	}
}

// endTenure ends the store lease's use. The caller must release it. The next store lease is
// acquired afterwards: otherwise the release would wait for the reply to the acquire.
func (c *Cohort) endTenure() (release *tenure) {
	release = c.tenure
	release.forget()
	c.tenure = nil
	c.releasing++
	return release
}

// release releases a store lease in the background. It returns a channel that receives the result.
func (c *Cohort) release(t *tenure) <-chan error {
	result := make(chan error, 1)
	go func() {
		err := hookError("unlock")
		defer func() { // also if a hook calls runtime.Goexit
			result <- err
			c.change(func() { c.releasing-- })
		}()
		err = t.store.Unlock()
	}()
	return result
}

// releaseLater releases a store lease, if there is any. The lease itself repeats a failed release,
// and no caller is left to receive the error.
func (c *Cohort) releaseLater(t *tenure) {
	if t != nil {
		c.release(t)
	}
}

// holdIdle keeps the store lease although no call of this process waits.
func (c *Cohort) holdIdle(now time.Time) {
	c.watchOthers(c.tenure)
	if c.tenure.fences.left() == 0 {
		c.reserveFences(c.tenure)
	}
	c.idle.begin(now, c.idleHold, c.endIdleHold)
}

// endIdleHold releases a store lease that was not used for as long as IdleHold says. The timer calls
// it.
func (c *Cohort) endIdleHold() {
	c.mu.Lock()
	idle := c.tenure != nil && c.holder == nil && c.callers.first == nil
	var release *tenure
	if c.idle.isOver(idle, time.Now(), c.idleHold, c.endIdleHold) {
		release = c.endTenure()
	}
	c.mu.Unlock()
	c.releaseLater(release)
}

// unlock ends a local lease, and passes the lock on. If it releases the store lease, it returns the
// release's error, or ErrUnavailable after the call's Timeout. lost is a lost lease's error.
func (c *Cohort) unlock(q *caller, lost error) error {
	c.mu.Lock()
	if c.holder == q {
		c.holder = nil
	}
	var release *tenure
	if lost != nil && c.tenure == q.lease.tenure { // MaxHold ended the lease at this moment
		release = c.endTenure()
	} else {
		release = c.advance(time.Now())
	}
	c.mu.Unlock()
	switch {
	case lost != nil:
		c.releaseLater(release)
		if t := q.lease.tenure; release != t { // the store may still have it
			go func() { _ = t.store.Unlock() }()
		}
		return lost
	case release == nil:
		return nil
	}
	limit := time.NewTimer(q.timeout)
	defer limit.Stop()
	select {
	case err := <-c.release(release):
		return err
	case <-limit.C:
		return &dibs.UnavailableError{Op: "unlock", Name: c.base.Name, Cause: errNoAnswer, Unknown: true}
	}
}

var errNoAnswer = errors.New("the store did not answer within the Timeout of the call")

// endedItself releases the store lease after a local lease ended by itself, after MaxHold. A lost
// lease is never passed on.
func (c *Cohort) endedItself(q *caller) {
	t := q.lease.tenure
	c.change(func() {
		if c.holder == q {
			c.holder = nil
		}
		if c.tenure == t {
			c.releaseLater(c.endTenure())
		}
	})
}

// storeEnded ends a lost store lease's use. If a caller was granted the lock but did not receive
// it, it waits again, before all others.
func (c *Cohort) storeEnded(t *tenure) {
	inUse := false
	c.change(func() {
		c.leave(t)
		inUse = t.inUse
	})
	if !inUse { // otherwise the local lease's Unlock does it
		_ = t.store.Unlock()
	}
}

// leave ends a lost store lease's use.
func (c *Cohort) leave(t *tenure) {
	if c.tenure == t {
		c.tenure = nil
	}
	q := c.holder
	if q == nil || q.lease.tenure != t {
		return
	}
	c.holder = nil
	if q.received {
		t.inUse = true
		return
	}
	q.lease.tenure = nil
	c.callers.addFirst(q)
}

// recordContention records that the callers know about other holders. The callers without this
// knowledge are last in the list. It ends the calls whose Wait is over, and wakes no others.
func (c *Cohort) recordContention() {
	now := time.Now()
	for q := c.callers.last; q != nil && !q.contended; {
		previous := q.previous
		q.contended = true
		if q.wait >= 0 && now.Sub(q.begin) >= q.wait {
			err := c.busy(q, nil)
			c.removeCaller(q)
			q.fail(err)
		}
		q = previous
	}
}

// isContended reports whether others are known to hold the lock.
func (c *Cohort) isContended() bool {
	return c.holder != nil || c.acquiring != nil && c.acquiring.queued
}
