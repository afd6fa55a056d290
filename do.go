package dibs

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/guard"
	"github.com/dibslock/dibs/internal/leasekey"
)

// A Doer runs a function under a lock. Mutex, SharedLock, MultiMutex and Once are Doers.
type Doer interface {
	Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error
}

// Call runs fn while holding the lock, as Do does, and returns fn's value. It returns the value
// even if fn or the release fails. Its errors are those of Do. If the lock or fn is nil, Call
// returns ErrInvalid.
func Call[T any](ctx context.Context, lock Doer, fn func(ctx context.Context) (T, error), options ...Option) (T, error) {
	var value T
	switch {
	case fn == nil:
		return value, errNotRun("", errNoFunc)
	case driver.IsNil(lock):
		return value, errNotRun("", invalid("nil lock given to Call"))
	}
	err := lock.Do(ctx, func(ctx context.Context) error {
		var err error
		value, err = fn(ctx)
		return err
	}, options...)
	return value, err
}

// Wrap returns a function that runs fn under the lock for its argument, as Do does:
//
//	pay := dibs.Wrap(func(o Order) dibs.Doer { return locks.Mutex("order:" + o.ID) }, svc.Pay)
//	err := pay(ctx, order)
//
// Each call returns ErrInvalid if fn or lock is nil, or if lock(arg) is nil. It also returns
// ErrInvalid if the options contain OwnerToken: a token is for a single call.
func Wrap[A any](lock func(A) Doer, fn func(ctx context.Context, arg A) error, options ...Option) func(ctx context.Context, arg A) error {
	return func(ctx context.Context, arg A) error {
		doer, err := doerFor(lock, arg, options)
		if err != nil {
			return errNotRun("", err)
		}
		if fn == nil {
			return errNotRun("", errNoFunc)
		}
		return doer.Do(ctx, func(ctx context.Context) error { return fn(ctx, arg) }, options...)
	}
}

// WrapCall is like Wrap, for a function that returns a value.
func WrapCall[A, R any](lock func(A) Doer, fn func(ctx context.Context, arg A) (R, error), options ...Option) func(ctx context.Context, arg A) (R, error) {
	return func(ctx context.Context, arg A) (result R, err error) {
		doer, err := doerFor(lock, arg, options)
		if err != nil {
			return result, errNotRun("", err)
		}
		if fn == nil {
			return result, errNotRun("", errNoFunc)
		}
		return Call(ctx, doer, func(ctx context.Context) (R, error) { return fn(ctx, arg) }, options...)
	}
}

func doerFor[A any](lock func(A) Doer, arg A, options []Option) (Doer, error) {
	if err := checkOfMany("Wrap", options); err != nil {
		return nil, err
	}
	if lock == nil {
		return nil, invalid("nil function for the lock")
	}
	doer := lock(arg)
	if driver.IsNil(doer) {
		return nil, invalid("nil lock for a %T", arg)
	}
	return doer, nil
}

// A lockFunc acquires the lease for a Do, with the call's settings.
type lockFunc func(ctx context.Context, set settings) (*Lease, error)

// do acquires a lease on a name with lock and runs fn while holding it. The options are the level
// below the base settings.
func do(ctx context.Context, name string, base *settings, lock lockFunc, fn func(ctx context.Context) error, options []Option) error {
	if fn == nil {
		return errNotRun(name, errNoFunc)
	}
	lease, err := lock(ctx, base.with(atCall, options))
	if err != nil {
		return errNotRun(name, err)
	}
	work, unlocked := (&carriedLease{lease: lease, lock: lock, base: base, options: options}).run(ctx, fn)
	return errAfterRun(name, work, unlocked)
}

var errNoFunc = invalid("nil function")

// run calls fn with a context that carries the lease and ends with ctx or the lease. It then
// unlocks the current lease, which Lease.Yield may have replaced. The context also ends when fn
// returns; otherwise a lease with other handles would keep it alive. run returns the errors from fn
// and from the lock.
func (carried *carriedLease) run(ctx context.Context, fn func(ctx context.Context) error) (work, lock error) {
	carried.handle.work = carried
	derived := carried.derive(ctx)
	returned := false
	defer func() {
		handle := carried.endWork()
		defer derived.end(handle.l) // even if a hook panics
		if carried.retryFailed && (work != nil || !returned) {
			handle.l.dropReservation()
		}
		lock = cmp.Or(carried.yieldFailure(), handle.Unlock())
	}()
	work = fn(derived.Context)
	returned = true
	return work, nil
}

// A carriedLease is a context that carries a lease. It is safe for concurrent use. It shares a
// struct with its derived context to save allocations.
type carriedLease struct {
	context.Context // the outer context, such as Do's argument

	outer       *carriedLease  // the next outer lease in the outer context, or nil
	derived     derivedContext // ends with the lease
	handle      Lease          // set by Do, for LeaseOf; otherwise zero
	lock        lockFunc       // set by Do, for Yield; otherwise nil
	base        *settings      // likewise
	options     []Option       // likewise; the level below base
	retryFailed bool           // set by Once: a release after failed work keeps no reservation

	mu       sync.Mutex
	lease    *Lease // replaced by Yield
	yielding bool   // a Yield is in progress
	ended    bool   // the function has returned: Yield no longer replaces the lease
	failed   error  // from a Yield that could not acquire the lock again
}

// Value implements context.Context.
func (carried *carriedLease) Value(key any) any {
	if key == (leasekey.Key{}) {
		return carried
	}
	return carried.Context.Value(key)
}

// derive returns a child of ctx that carries the lease and ends with it.
func (carried *carriedLease) derive(ctx context.Context) *derivedContext {
	carried.deriveUnregistered(ctx)
	if ended := carried.derived.endWith(carried.current().lease()); ended != nil {
		carried.derived.cancel(ended)
	}
	return &carried.derived
}

// deriveUnregistered is derive without ending the context with the lease.
func (carried *carriedLease) deriveUnregistered(ctx context.Context) *derivedContext {
	carried.Context, carried.outer = ctx, carriedIn(ctx)
	carried.derived.Context, carried.derived.cancel = context.WithCancelCause(carried)
	return &carried.derived
}

// handleOf returns the Lease for the context's users.
func (carried *carriedLease) handleOf() *Lease {
	if carried.handle.work != nil {
		return &carried.handle
	}
	return carried.current()
}

// carriers yields the leases and the fences of WithFence that ctx carries, the innermost first. Each
// time one of the two is nil.
func carriers(ctx context.Context) iter.Seq2[*carriedLease, *carriedFence] {
	return func(yield func(*carriedLease, *carriedFence) bool) {
		for {
			switch in := ctx.Value(leasekey.Key{}).(type) {
			case *carriedLease:
				if !yield(in, nil) {
					return
				}
				ctx = in.Context
			case *carriedFence:
				if !yield(nil, in) {
					return
				}
				ctx = in.Context
			default:
				return
			}
		}
	}
}

// carriedIn returns the innermost lease in ctx, or nil.
func carriedIn(ctx context.Context) *carriedLease {
	for lease := range carriers(ctx) {
		if lease != nil {
			return lease
		}
	}
	return nil
}

// current returns the current lease. In a context from WithLease it may be a Do's lease.
func (carried *carriedLease) current() *Lease {
	carried.mu.Lock()
	defer carried.mu.Unlock()
	return carried.lease
}

// endWork returns the lease when the work ends, and stops Yield from replacing it.
func (carried *carriedLease) endWork() *Lease {
	carried.mu.Lock()
	defer carried.mu.Unlock()
	carried.ended = true
	return carried.lease
}

// yieldFailure returns the error from a Yield that could not acquire the lock again, or nil.
func (carried *carriedLease) yieldFailure() error {
	carried.mu.Lock()
	defer carried.mu.Unlock()
	return carried.failed
}

// HeldLeases returns the leases to package guard, each lease once: a transaction that has released it
// would not find it again.
func (carried *carriedLease) HeldLeases(leasekey.Key) (held []guard.Lease) {
	var listed []*lease
	for ; carried != nil; carried = carried.outer {
		l := carried.current().lease()
		if !slices.Contains(listed, l) {
			listed, held = append(listed, l), append(held, describe(l))
		}
	}
	return held
}

// describe returns the data a store needs to tie a lease to a transaction.
func describe(l *lease) guard.Lease {
	s := l.LockState()
	defer l.UnlockState()
	held := guard.Lease{Store: l.c.store.Store, Token: s.Token, Reentered: l.handles > 1, Reserve: max(s.Times.MinHoldUntil()-l.c.clock.Now(), 0)}
	unsure := s.Unanswered() != nil || s.LateResize() != nil // a late request issues another fence
	for _, n := range s.Names() {
		if unsure {
			n.Fence = 0
		}
		held.Names, held.Fences = append(held.Names, n.Name), append(held.Fences, n.Fence)
	}
	return held
}

// leaseIn returns the innermost valid lease in ctx on any requested name, or nil.
func leaseIn(ctx context.Context, c *Client, w lockSpec) *lease {
	for carried := carriedIn(ctx); carried != nil; carried = carried.outer {
		l := carried.current().lease()
		if l.c == c && l.countHeld(w.name, w.with...) > 0 && l.first.Err() == nil {
			return l
		}
	}
	return nil
}

// countHeld returns the number of these names in the lease.
func (l *lease) countHeld(name string, more ...string) int {
	s := l.LockState()
	defer l.UnlockState()
	n := 0
	if s.Holds(name) {
		n++
	}
	for _, name := range more {
		if s.Holds(name) {
			n++
		}
	}
	return n
}

// reenter returns a new handle for a nested call, if the lease holds everything the call requests.
func (l *lease) reenter(w lockSpec, reentrant bool) (*Lease, error) {
	all := l.countHeld(w.name, w.with...) == 1+len(w.with)
	s := l.LockState()
	defer l.UnlockState()
	held := s.Weight()
	enough := all && (held.Weight == held.Limit || w.weight < w.limit && w.weight <= held.Weight)
	err := l.errLocked()
	switch {
	case err != nil:
		return nil, err
	case !enough:
		return nil, fmt.Errorf("%w: %q, with less weight than requested: waiting would deadlock", ErrReentrant, s.Name)
	case !reentrant:
		return nil, fmt.Errorf("%w: %q; use Reentrant() to enter it again", ErrReentrant, s.Name)
	}
	l.handles++
	return &Lease{l: l}, nil
}
