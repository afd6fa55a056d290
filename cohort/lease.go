package cohort

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dibslock/dibs"
)

// A Lease is a single call's lock, with its own fence. It is held until Unlock, until MaxHold, or
// until the Cohort's store lease ends (the lease in the store, shared by its calls). If the store
// lease is lost, the held Lease is also lost. The next call then waits for a new store lease.
//
// A Lease has no methods such as Extend and Detach, and a database store's Guard does not accept
// its context. For these, lock the name with a Mutex. To revoke the Lease, pass the fence from
// Client.Inspect to Client.Revoke. A Lease is safe for concurrent use.
type Lease struct {
	call    *caller
	tenure  *tenure
	fence   uint64
	maxHold time.Duration // zero: none

	mu      sync.Mutex
	err     error // why the lease ended; nil while it is held
	done    bool  // it was unlocked
	derived derivedContext
	until   time.Time   // the end of MaxHold
	timer   *time.Timer // for MaxHold; nil if there is none

	wanted   chan struct{} // for Wanted; nil if it was not called; the cohort's lock guards it
	isWanted bool          // it is closed
}

func (l *Lease) isZero() bool { return l == nil || l.tenure == nil }

var errNoLease = invalid("the Lease is nil or a zero value: Lock returns a held one")

// Name returns the held name.
func (l *Lease) Name() string {
	if l.isZero() {
		return ""
	}
	return l.call.c.base.Name
}

// Fence returns the lease's fence: see dibs.Lease.Fence. It is larger than the fences of the
// Cohort's earlier Leases.
func (l *Lease) Fence() uint64 {
	if l.isZero() {
		return 0
	}
	return l.fence
}

// Deadline returns when the lease ends unless the store lease is renewed, or earlier by MaxHold.
func (l *Lease) Deadline() time.Time {
	if l.isZero() {
		return time.Time{}
	}
	deadline := l.tenure.store.Deadline()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil && l.until.Before(deadline) {
		return l.until
	}
	return deadline
}

// Err returns nil while the lease is held. Afterwards it returns ErrReleased if the lease was
// unlocked, and a *dibs.LostError if it was lost. Like dibs.Lease.Err, it compares the clock with
// the lease's deadline, so its result is correct even right after a pause of the process.
func (l *Lease) Err() error {
	if l.isZero() {
		return errNoLease
	}
	l.mu.Lock()
	err, over := l.err, l.timer != nil && !time.Now().Before(l.until)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if err := l.tenure.store.Err(); err != nil {
		_, err = l.end(err)
		return err
	}
	if over {
		return l.exceed()
	}
	return nil
}

// Context returns a context that ends with the lease. Its cause is ErrLost if the lease was lost.
// The context has the values of the context passed to Lock, but not its deadline or cancellation.
// With this context, dibs.Fence and dibs.FenceOf return the lease's fence. It carries no
// dibs.Lease, so dibs.LeaseOf finds none.
func (l *Lease) Context() context.Context {
	if l.isZero() {
		ended, cancel := context.WithCancelCause(context.Background())
		cancel(errNoLease)
		return ended
	}
	l.mu.Lock()
	derived := l.derived
	l.mu.Unlock()
	if derived.Context != nil {
		return derived.Context
	}
	return l.derive(context.WithoutCancel(l.call.ctx))
}

// A derivedContext is a context that ends with a lease.
type derivedContext struct {
	context.Context
	cancel context.CancelCauseFunc
	stop   func() bool // so it does not end with the store lease
}

// end ends the context, if any.
func (d derivedContext) end(cause error) {
	if d.Context != nil {
		d.stop()
		d.cancel(cause)
	}
}

// heldKey is the key for a Cohort's Lease in a context.
type heldKey struct{ c *Cohort }

// derive makes the lease's context, which is a child of parent. If there is a context, derive
// returns it. Ending it needs no cohort lock.
func (l *Lease) derive(parent context.Context) context.Context {
	carrier := context.WithValue(dibs.WithFence(parent, l.Name(), l.fence), heldKey{l.call.c}, l)
	var own derivedContext
	own.Context, own.cancel = context.WithCancelCause(carrier)
	own.stop = context.AfterFunc(l.tenure.store.Context(), func() { _ = l.Err() })
	l.mu.Lock()
	ended, first := l.err, l.derived.Context == nil
	if first {
		l.derived = own
	}
	derived := l.derived
	l.mu.Unlock()
	switch {
	case !first: // another goroutine was
		own.end(context.Canceled)
	case ended != nil:
		own.end(endOf(ended))
	}
	return derived.Context
}

// endOf returns the cause with which a lease's context ends.
func endOf(err error) error {
	if errors.Is(err, dibs.ErrReleased) {
		return context.Canceled
	}
	return err
}

// end ends the lease, if it is held. It returns whether this is new, and why the lease ended.
func (l *Lease) end(err error) (isNew bool, why error) {
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return false, l.err
	}
	l.err = err
	derived, timer := l.derived, l.timer
	l.mu.Unlock()
	if timer != nil {
		timer.Stop()
	}
	derived.end(endOf(err))
	return true, err
}

// limitHold starts MaxHold's time.
func (l *Lease) limitHold() {
	if l.maxHold <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = time.Now().Add(l.maxHold)
	l.timer = time.AfterFunc(l.maxHold, func() { _ = l.exceed() })
}

// exceed ends a lease after MaxHold, and then makes the cohort release the store lease.
func (l *Lease) exceed() error {
	isNew, err := l.end(&dibs.LostError{Name: l.Name(), Token: l.tenure.store.Token(), Reason: dibs.ReasonMaxHold})
	if isNew {
		l.call.c.endedItself(l.call)
	}
	return err
}

// Unlock gives the lock to the Cohort's next call, or releases the store lease. It takes no
// context; the Timeout of Lock limits it. It returns ErrLost if the lease was lost before, and nil
// if it was already unlocked. If the store does not reply to the release in time, Unlock returns
// ErrUnavailable: the outcome is unknown. The release continues in the background.
func (l *Lease) Unlock() error {
	if l.isZero() {
		return errNoLease
	}
	l.mu.Lock()
	again := l.done
	l.done = true
	l.mu.Unlock()
	if again {
		return nil
	}
	lost := l.Err()
	if isNew, why := l.end(l.call.c.ended); !isNew {
		lost = why // also if it was lost in between
	}
	return l.call.c.unlock(l.call, lost)
}

// Wanted returns a channel that is closed when another call waits for the lock, in this Cohort or
// in another process. The first call to Wanted asks the store, in the background, to report waiting
// requests from other processes: see dibs.Lease.Wanted.
func (l *Lease) Wanted() <-chan struct{} {
	if l.isZero() {
		return nil
	}
	c := l.call.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.wanted == nil {
		l.wanted = make(chan struct{})
	}
	if c.holder == l.call {
		c.watchOthers(l.tenure)
		c.signalWanted()
	}
	return l.wanted
}

// setWanted closes Wanted's channel, if any. The caller must hold the cohort's lock.
func (l *Lease) setWanted() {
	if l.wanted != nil && !l.isWanted {
		l.isWanted = true
		close(l.wanted)
	}
}
