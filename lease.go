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

// A Lease is a held lock: a name, a share of it, or several names together. It is safe
// for concurrent use.
//
// The Client renews it until Unlock, unless NoRenew or MaxHold is set. A lease that is
// not renewed in time is lost. The holder knows first: Err reports the loss, and Context
// ends, before the store can grant the name to anyone else.
//
// A nil or zero Lease holds nothing: its methods return ErrInvalid or zero values, and its
// Context has ended.
//
// The lease of a Do, which LeaseOf returns, has all methods. But Do itself releases it: Unlock and
// Detach return ErrInvalid.
type Lease struct {
	l    *lease
	work *carriedLease // of a Do, which has the lease instead: Yield replaces it; or nil
	done bool          // guarded by l.mu: this handle was unlocked
}

var errNoLease = invalid("the Lease is nil or a zero value: Lock and the like return a held one")

func (handle *Lease) isZero() bool { return handle == nil || handle.l == nil && handle.work == nil }

// lease returns the lease that the handle has at the moment.
func (handle *Lease) lease() *lease {
	if handle.work != nil {
		return handle.work.current().lease()
	}
	return handle.l
}

// A lease is what the handles of one held lock share: a reentrant call gets a second
// handle. Its State has the transitions, and the lease does what follows from them.
// It is safe for concurrent use.
type lease struct {
	c      *Client
	parent context.Context // the context of the call, for its values
	first  Lease           // a field, to save an allocation
	hooks  *leaseHooks     // nil if there are no hooks
	place  renew.Place     // guarded by the scheduler of the client

	mu       sync.Mutex // guards the fields below, except ownToken, state.Name and state.Token; the scheduler may be called while it is held
	state    leasestate.State
	extra    *leaseExtra     // what only some leases have; or nil
	contexts derivedContexts // that end with the lease
	handles  int32           // that are not unlocked
	ownToken bool            // the caller has chosen the token and may use it again
	hasToken bool            // the token is listed, see acquire.Acquirer.Reserve
}

// A leaseExtra is what only some leases have beside their State: a process may hold a million
// leases.
type leaseExtra struct {
	timeout    time.Duration   // of one operation; or zero: that of the client
	term       *Election       // that has acquired the lease, or nil
	resigned   error           // the work must end, though the lease is held
	lost       *LostError      // the same one for all who ask, or nil
	resizeTurn chan struct{}   // has an element while the weight is changed; nil before the first change
	wanted     *wantedSignal   // of Lease.Wanted; nil if it was not called
	own        []*carriedLease // of Lease.Context, for each handle that has called it
}

// Name returns the name that is held; of several, the one that was acquired first.
func (handle *Lease) Name() string {
	if handle.isZero() {
		return ""
	}
	return handle.lease().state.Name
}

// Fence returns the fence of the lease, its fencing token. It is larger than the fence of
// each earlier lease on the name. A resource that rejects writes with a smaller fence than
// it has seen is safe from holders that have not detected their loss. Fences are not
// consecutive. They are about the time in µs since 1970, and fit in a signed 64-bit column.
//
// The fence of an attached lease is that of its handle: zero if NewHandle has made it. For several
// names see FenceOf.
func (handle *Lease) Fence() uint64 {
	if handle.isZero() {
		return 0
	}
	l := handle.lease()
	defer l.UnlockState()
	return l.LockState().Fence()
}

// FenceOf returns the fence for one of the names that the lease holds. For any other name
// it returns zero.
func (handle *Lease) FenceOf(name string) uint64 {
	if handle.isZero() {
		return 0
	}
	l := handle.lease()
	defer l.UnlockState()
	return l.LockState().FenceOf(name)
}

// Token returns the owner token. To let another process use the lease, pass on its Handle.
func (handle *Lease) Token() Token {
	if handle.isZero() {
		return ""
	}
	return Token(handle.lease().state.Token)
}

// String returns the name and the fence of the lease for logs, and not its token.
func (handle *Lease) String() string {
	if handle.isZero() {
		return "no lease"
	}
	return fmt.Sprintf("lease on %q with fence %d", handle.Name(), handle.Fence())
}

// Deadline returns the time at which the lease is lost if it is not renewed. That is a
// little before the store's TTL ends: see docs/guarantees.md.
func (handle *Lease) Deadline() time.Time {
	if handle.isZero() {
		return time.Time{}
	}
	l := handle.lease()
	defer l.UnlockState()
	return time.Now().Add(l.LockState().Times.Deadline() - l.c.clock.Now())
}

// Err returns nil while the lease is held. Afterwards it returns ErrReleased if the lease
// was unlocked, and a *LostError if it was lost. It compares the clock itself, so it is
// correct even directly after the process was stopped. Call it just before a write that
// must not come late. (Only the fence can stop a write that is already in progress.)
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

// LockState locks the lease and returns its state, which UnlockState or Commit unlocks. It is
// part of renew.Holder.
func (l *lease) LockState() *leasestate.State {
	l.mu.Lock()
	return &l.state
}

// UnlockState unlocks a lease from whose state nothing has to follow. It is part of renew.Holder.
func (l *lease) UnlockState() { l.mu.Unlock() }

// Commit is commit for the scheduler. It is part of renew.Holder.
func (l *lease) Commit() bool { return l.commit() == nil }

// IsObserved reports whether anybody wants to know of a renewal that fails. It is part of
// renew.Holder.
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

// update runs a transition and does what follows from it. It returns the error of commit.
func (l *lease) update(transition func(s *leasestate.State)) error {
	transition(l.LockState())
	return l.commit()
}

// commit does what follows from a transition of a locked lease, and unlocks it: it schedules the
// next action, or ends what belongs to the lease. It returns why the lease has ended, ErrClosed if the
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

// endLocked removes a lease that has just ended from what refers to it.
func (l *lease) endLocked() {
	end := l.state.End()
	if end.Reason.IsLoss() {
		l.extraLocked().lost = lostError(end, l.state.Token)
	}
	if signal := l.readExtraLocked().wanted; signal != nil {
		l.c.wanted.remove(signal)
	}
	if end.Reason.IsLoss() && end.Reason != leasestate.Closed && l.state.More() > 0 {
		l.c.partlyLost.add(l) // until the work has ended
	}
	l.c.renewals.Remove(l) // last: Close looks here first
	l.c.signalIdle()
}

// end ends the contexts of a lease that has just ended, and queues its Lost hooks.
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

// errLocked returns why the lease has ended, or nil.
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

// extraOf returns the extra fields of a new lease with these settings, or nil.
func extraOf(set *settings, c *Client) *leaseExtra {
	if set.timeout == c.defaults.timeout {
		return nil
	}
	return &leaseExtra{timeout: set.timeout}
}

// extraLocked returns the extra fields, for changing them.
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

// timeout returns the time limit of one operation.
func (l *lease) timeout() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.readExtraLocked().timeout, l.c.defaults.timeout)
}

// values returns the context whose values the requests of a lease have: that of the call,
// with what the AcquireStart hooks have added.
func (l *lease) values() context.Context {
	if l.hooks != nil {
		return l.hooks.context()
	}
	return l.parent
}

// lose ends the lease because one of its names is lost.
func (l *lease) lose(e leasestate.End) error {
	return l.update(func(s *leasestate.State) { s.Lose(e) })
}
