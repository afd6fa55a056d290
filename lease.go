package dibs

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	leasestate "github.com/dibslock/dibs/internal/lease"
	"github.com/dibslock/dibs/internal/renew"
)

// A Lease is a held lock: a name, a share of a name, or several names together. It is safe for
// concurrent use.
//
// The Client renews the lease until Unlock, unless NoRenew or MaxHold is set. A lease not renewed
// in time is lost. Before the store can then grant the name to another owner, Err already reports
// the loss and Context has ended.
//
// A nil or zero Lease holds nothing: its methods return ErrInvalid or zero values, and its Context
// is already ended.
//
// Only Do releases a lease that Do acquired: Unlock and Detach of this lease, as returned by
// LeaseOf, return ErrInvalid.
type Lease struct {
	l    *lease
	work *carriedLease // for a Do's lease, which Yield can replace; otherwise nil
	done bool          // guarded by l.mu: this handle was unlocked
}

var errNoLease = invalid("the Lease is nil or a zero value: Lock and the like return a held one")

func (handle *Lease) isZero() bool { return handle == nil || handle.l == nil && handle.work == nil }

// lease returns the handle's current lease.
func (handle *Lease) lease() *lease {
	if handle.work != nil {
		return handle.work.current().lease()
	}
	return handle.l
}

// A lease is the state shared by a held lock's handles: a reentrant call gets a second handle. Its
// State makes the transitions, and the lease acts on them. It is safe for concurrent use.
type lease struct {
	c      *Client
	parent context.Context // the call's context, for its values
	first  Lease           // a field, to save an allocation
	hooks  *leaseHooks     // nil if there are no hooks
	place  renew.Place     // guarded by the client's scheduler

	mu       sync.Mutex // guards the fields below, except ownToken, state.Name and state.Token; the scheduler may be called while it is held
	state    leasestate.State
	extra    *leaseExtra     // rarely used fields; or nil
	contexts derivedContexts // end with the lease
	handles  int32           // not yet unlocked
	ownToken bool            // the caller chose the token and can use it again
	hasToken bool            // the token is listed, see acquire.Acquirer.Reserve
}

// A leaseExtra contains rarely used fields, allocated on demand: a process can hold a million
// leases.
type leaseExtra struct {
	timeout    time.Duration   // for an operation; zero means the client's
	term       *Election       // acquired this lease as a term; or nil
	resigned   error           // the work must end, though the lease is held
	lost       *LostError      // the same error for all callers, or nil
	resizeTurn chan struct{}   // contains an element while the weight changes; nil before the first change
	wanted     *wantedSignal   // for Lease.Wanted; nil if it was not called
	own        []*carriedLease // for Lease.Context: one for each handle that called it
}

// Name returns the held name; for several names, the first acquired.
func (handle *Lease) Name() string {
	if handle.isZero() {
		return ""
	}
	return handle.lease().state.Name
}

// Fence returns the lease's fence, its fencing token. It is larger than the fences of all earlier
// leases on the name. A resource, such as a database, should reject a write with a fence smaller
// than the largest fence it has seen. The resource then rejects writes by holders that have not
// detected their loss. Fences are not consecutive. They are roughly the time in µs since 1970, and
// fit in a signed 64-bit column.
//
// The fence of an attached lease comes from the Handle that [Client.Attach] received. A Handle made
// by [NewHandle] contains no fence, so Fence returns zero. For a lease on several names, use
// FenceOf.
func (handle *Lease) Fence() uint64 {
	if handle.isZero() {
		return 0
	}
	l := handle.lease()
	defer l.UnlockState()
	return l.LockState().Fence()
}

// FenceOf returns the fence for a name in the lease, or zero for any other name.
func (handle *Lease) FenceOf(name string) uint64 {
	if handle.isZero() {
		return 0
	}
	l := handle.lease()
	defer l.UnlockState()
	return l.LockState().FenceOf(name)
}

// Token returns the owner token. To let another process use the lease, pass on its Handle instead.
func (handle *Lease) Token() Token {
	if handle.isZero() {
		return ""
	}
	return Token(handle.lease().state.Token)
}

// String returns the lease's name and fence for logs, without its token.
func (handle *Lease) String() string {
	if handle.isZero() {
		return "no lease"
	}
	return fmt.Sprintf("lease on %q with fence %d", handle.Name(), handle.Fence())
}

// Deadline returns the time at which the lease is lost unless renewed. It is slightly before the
// store's TTL ends: see docs/guarantees.md.
func (handle *Lease) Deadline() time.Time {
	if handle.isZero() {
		return time.Time{}
	}
	l := handle.lease()
	defer l.UnlockState()
	return time.Now().Add(l.LockState().Times.Deadline() - l.c.clock.Now())
}

// Err returns nil while the lease is held, ErrReleased after its Unlock, and a *LostError after a
// loss. Err does no I/O. It compares the clock with the lease's deadline, so its result is correct
// even right after a pause of the process. The holder should call Err just before a write that must
// not come late. A write already in progress can only be rejected by its fence.
func (handle *Lease) Err() error {
	if handle.isZero() {
		return errNoLease
	}
	l := handle.lease()
	now := l.c.clock.Check()
	s := l.LockState()
	if !s.Times.IsOver(now) {
		defer l.UnlockState()
		return l.errLocked()
	}
	s.Expire()
	return l.commit()
}

// Place implements renew.Holder.
func (l *lease) Place() *renew.Place { return &l.place }

// LockState locks the lease and returns its state. UnlockState or Commit unlocks it. It is part of
// renew.Holder.
func (l *lease) LockState() *leasestate.State {
	l.mu.Lock()
	return &l.state
}

// UnlockState unlocks a lease whose state needs no action. It is part of renew.Holder.
func (l *lease) UnlockState() { l.mu.Unlock() }

// Commit is commit for the scheduler. It is part of renew.Holder.
func (l *lease) Commit() bool { return l.commit() == nil }

// IsObserved reports whether a hook may receive failed renewals. It is part of renew.Holder.
func (l *lease) IsObserved() bool { return l.hooks != nil }

// RenewFailed queues the RenewFailed hooks. It is part of renew.Holder.
func (l *lease) RenewFailed() { l.hooks.renewFailed(l) }

// Renewed asks the store again for the next waiter, if Wanted was called. It is part of
// renew.Holder.
func (l *lease) Renewed() {
	l.mu.Lock()
	signal := l.readExtraLocked().wanted
	l.mu.Unlock()
	if signal != nil {
		signal.register()
	}
}

// reason returns why the lease is not held, or Held.
func (l *lease) reason() leasestate.Reason {
	defer l.UnlockState()
	return l.LockState().Reason()
}

// update makes a transition and acts on it. It returns commit's error.
func (l *lease) update(transition func(s *leasestate.State)) error {
	transition(l.LockState())
	return l.commit()
}

// commit acts on a locked lease's transition, and unlocks the lease. It schedules the next action,
// or ends everything that belongs to the lease. It returns why the lease ended, ErrClosed if the
// client is closed, or nil.
func (l *lease) commit() error {
	if l.state.DetectEnd() {
		l.endLocked()
		contexts, err := l.contexts.removeAll(), l.errLocked()
		l.mu.Unlock()
		l.end(contexts)
		return err
	}
	defer l.mu.Unlock()
	err := l.errLocked()
	if l.state.Reason() == leasestate.Held {
		if at, early := l.state.Times.NextAction(); !l.c.renewals.Set(l, l.c.clock.Now(), at, early) {
			return ErrClosed
		}
	}
	return err
}

// endLocked removes an ended lease from everything that refers to it.
func (l *lease) endLocked() {
	end := l.state.End()
	if end.Reason.IsLoss() {
		l.extraLocked().lost = lostError(end, l.state.Token)
	}
	if signal := l.readExtraLocked().wanted; signal != nil {
		l.c.wanted.remove(signal)
	}
	if end.Reason.IsLoss() && end.Reason != leasestate.Closed && l.state.More() > 0 {
		l.c.partlyLost.add(l) // until the work ends
	}
	l.c.renewals.Remove(l) // last: Close looks here first
	l.c.signalIdle()
}

// end ends an ended lease's contexts, and queues its Lost hooks.
func (l *lease) end(contexts []*derivedContext) {
	l.mu.Lock()
	lost := l.readExtraLocked().lost
	l.mu.Unlock()
	cause := context.Canceled
	if lost != nil {
		cause = lost
	}
	for _, derived := range contexts {
		derived.cancel(cause)
	}
	if lost != nil {
		l.hooks.lost(l, lost)
	}
}

// errLocked returns why the lease ended, or nil.
func (l *lease) errLocked() error {
	switch l.state.Reason() {
	case leasestate.Held:
		return nil
	case leasestate.Released, leasestate.Merged:
		return releasedError{l.state.Name}
	default:
		return l.extra.lost
	}
}

// extraOf returns the extra fields for a new lease with these settings, or nil.
func extraOf(set *settings, c *Client) *leaseExtra {
	if set.timeout == c.defaults.timeout {
		return nil
	}
	return &leaseExtra{timeout: set.timeout}
}

// extraLocked returns the extra fields for writing.
func (l *lease) extraLocked() *leaseExtra {
	if l.extra == nil {
		l.extra = new(leaseExtra)
	}
	return l.extra
}

// readExtraLocked returns a copy of the extra fields.
func (l *lease) readExtraLocked() leaseExtra {
	if l.extra == nil {
		return leaseExtra{}
	}
	return *l.extra
}

// timeout returns the time limit for an operation.
func (l *lease) timeout() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.readExtraLocked().timeout, l.c.defaults.timeout)
}

// values returns the context whose values the lease's requests carry: the call's context, with the
// AcquireStart hooks' values.
func (l *lease) values() context.Context {
	if l.hooks != nil {
		return l.hooks.context()
	}
	return l.parent
}

// lose ends the lease because a name is lost.
func (l *lease) lose(e leasestate.End) error {
	return l.update(func(s *leasestate.State) { s.Lose(e) })
}
