package dibs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/acquire"
	"github.com/dibslock/dibs/internal/renew"
	"github.com/dibslock/dibs/internal/work"
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
type Lease struct {
	h    *lease
	done bool // guarded by h.mu: this handle was unlocked
}

var errNoLease = invalid("the Lease is nil or a zero value: Lock and the like return a held one")

func (l *Lease) isZero() bool { return l == nil || l.h == nil }

// A lease is what the handles of one held lock share: a reentrant call gets a second
// handle. Its leaseState has the transitions, and the lease does what follows from them.
// It is safe for concurrent use.
type lease struct {
	c      *Client
	parent context.Context // the context of the call, for its values
	first  Lease           // a field, to save an allocation
	hooks  *leaseHooks     // nil if there are no hooks
	place  renew.Place     // guarded by the queue of the client

	mu sync.Mutex // guards the fields below, except name, token and ownToken; the queue may be called while it is held
	leaseState
	contexts derivedContexts // that end with the lease
	own      *derivedContext // of Context; nil if it was not called
	handles  int32           // that are not unlocked
	term     bool            // the lease is a term of an election
	ownToken bool            // the caller has chosen the token and may use it again
	hasToken bool            // the token is listed in ownTokens
}

// update runs a transition and does what follows from it: it schedules the next action, or
// ends what belongs to the lease. It returns why the lease has ended or is not confirmed,
// ErrClosed if the client is closed, or nil.
func (h *lease) update(transition func(s *leaseState)) error {
	h.mu.Lock()
	before := h.ended
	transition(&h.leaseState)
	err := h.err
	switch {
	case before && h.ended: // also one that was merged into another, which has no error
	case h.ended:
		defer h.end(h.contexts.removeAll())
		h.c.renewals.Remove(h)
		if h.extra().wanted != nil {
			h.c.wanted.remove(h)
		}
		if why, lost := h.lostReason(); lost && len(h.extra().moreNames) > 0 && why != ReasonClosed {
			h.c.partlyLost.add(h) // until the work has ended
		}
	case err == nil:
		at, early := h.nextAction()
		if at < never && !h.c.renewals.Set(h, h.c.clock.Now(), at, early) {
			err = ErrClosed
		}
	}
	h.mu.Unlock()
	return err
}

// end ends the contexts of a lease that has just ended, and queues its Lost hooks.
func (h *lease) end(contexts []*derivedContext) {
	h.mu.Lock()
	cause := h.err
	_, lost := h.lostReason()
	h.mu.Unlock()
	if !lost {
		cause = context.Canceled
	}
	for _, b := range contexts {
		b.cancel(cause)
	}
	if lost && h.hooks != nil {
		h.queueLost()
	}
}

// readExtra returns a copy of the extra state.
func (h *lease) readExtra() leaseExtra {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.extra()
}

// timeout returns the time limit of one operation.
func (h *lease) timeout() time.Duration { return cmp.Or(h.readExtra().timeout, h.c.defaults.timeout) }

// values returns the context whose values the requests of a lease have: that of the call,
// with what the AcquireStart hooks have added.
func (h *lease) values() context.Context {
	if h.hooks != nil {
		return h.hooks.context()
	}
	return h.parent
}

// lose ends the lease because one of its names is lost.
func (h *lease) lose(name string, why Reason, cause error) error {
	return h.update(func(s *leaseState) { s.lose(name, why, cause, "") })
}

// Context returns a context that ends with the lease, with cause ErrLost if the lease was
// lost. It has the values of the context given to Lock, but not its deadline or
// cancellation, which limit the waiting only.
func (l *Lease) Context() context.Context {
	if l.isZero() {
		ended, cancel := context.WithCancelCause(context.Background())
		cancel(errNoLease)
		return ended
	}
	h := l.h
	h.mu.Lock()
	own := h.own
	h.mu.Unlock()
	if own != nil {
		return own.Context
	}
	derived := (&carriedLease{lease: &h.first}).derive(context.WithoutCancel(h.parent))
	h.mu.Lock()
	if h.own == nil {
		h.own = derived
	}
	own = h.own
	h.mu.Unlock()
	if own != derived { // another goroutine was first
		h.removeContext(derived)
	}
	return own.Context
}

// addContext makes a context end with the lease. If it must end at once, addContext returns
// the cause: the caller ends it, without a lock, because that calls methods of the user's
// context.
func (h *lease) addContext(b *derivedContext) (ended error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended:
		return h.err
	case h.extra().resigned != nil:
		return h.extra().resigned
	}
	h.contexts.add(b)
	return nil
}

// removeContext ends one context of the lease and removes it from the lease.
func (h *lease) removeContext(b *derivedContext) {
	h.mu.Lock()
	h.contexts.remove(b)
	h.mu.Unlock()
	b.cancel(context.Canceled)
}

// Name returns the name that is held; of several, the one that was acquired first.
func (l *Lease) Name() string {
	if l.isZero() {
		return ""
	}
	return l.h.name
}

// Fence returns the fence of the lease, its fencing token. It is larger than the fence of
// each earlier lease on the name. A resource that rejects writes with a smaller fence than
// it has seen is safe from holders that have not detected their loss. Fences are not
// consecutive. They are about the time in µs since 1970, and fit in a signed 64-bit column.
//
// The fence of an attached lease is zero, because only the call that acquired it received
// its fence: pass the fence on together with the token. For several names see FenceOf.
func (l *Lease) Fence() uint64 {
	if l.isZero() {
		return 0
	}
	h := l.h
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fence
}

// FenceOf returns the fence for one of the names that the lease holds. For any other name
// it returns zero.
func (l *Lease) FenceOf(name string) uint64 {
	if l.isZero() {
		return 0
	}
	h := l.h
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fenceOf(name)
}

// Token returns the owner token, with which another process can Attach.
func (l *Lease) Token() string {
	if l.isZero() {
		return ""
	}
	return l.h.token
}

// Deadline returns the time at which the lease is lost if it is not renewed. That is a
// little before the store's TTL ends: see docs/guarantees.md. For an
// attached lease it is the zero time until Extend has confirmed the lease.
func (l *Lease) Deadline() time.Time {
	if l.isZero() {
		return time.Time{}
	}
	h := l.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deadline == 0 {
		return time.Time{}
	}
	return time.Now().Add(h.deadline - h.c.clock.Now())
}

// Err returns nil while the lease is held. Afterwards it returns ErrReleased if the lease
// was unlocked, and a *LostError if it was lost. It compares the clock itself, so it is
// correct even directly after the process was stopped. Call it just before a write that
// must not come late. (Only the fence can stop a write that is already in progress.)
func (l *Lease) Err() error {
	if l.isZero() {
		return errNoLease
	}
	h := l.h
	now := h.c.clock.Check()
	h.mu.Lock()
	if !h.isOver(now) {
		defer h.mu.Unlock()
		return h.err
	}
	h.mu.Unlock()
	return h.update(func(s *leaseState) {
		if s.isOver(h.c.clock.Now()) {
			s.expire()
		}
	})
}

// Extend sets the remaining time of the lease to at least d, and makes d the TTL of later
// renewals. So pass the TTL that the lease is to have from now on. It never shortens a lease
// and never restores a lost one. d is from 10 ms to 24 h.
//
// Extend returns ErrLost if the lease is lost. If the outcome is unknown when ctx or the
// operation timeout ends, it returns ErrUnavailable, and the lease lasts as long as
// before or longer. The name stays reserved for MinHold, whatever d is. On an attached lease, Extend confirms the lease and starts its
// renewal.
func (l *Lease) Extend(ctx context.Context, d time.Duration) error {
	if l.isZero() {
		return errNoLease
	}
	h := l.h
	if err := checkTTL("Extend by", h.name, d); err != nil {
		return err
	}
	if err := h.checkExtendable(); err != nil {
		return err
	}
	var lost string // the name
	var sent, ttl time.Duration
	err := h.c.acquirer.Retry(ctx, time.Now().Add(h.timeout()), func(a acquire.Attempt) (err error) {
		h.mu.Lock()
		sent, ttl = a.Sent, h.extensionTTL(a.Sent, d)
		h.mayExtend(h.c.clock.At(a.Until), ttl)
		requests := h.extendRequests(nil, h.c.id, ttl)
		h.mu.Unlock()
		errs := h.c.store.Extend(ctx, a.Until, requests)
		h.mu.Lock()
		defer h.mu.Unlock()
		lost, err = h.extendResult(errs)
		return err
	})
	switch {
	case err == nil:
		return h.recordExtension(sent, ttl, d)
	case errors.Is(err, ErrLost):
		return h.lose(lost, ReasonTaken, takenBy(err))
	default:
		return err
	}
}

// Unlock releases the lock. The store grants it to the first waiter in the same step.
// Unlock takes no context: it has its own time limit, the operation timeout, so a
// cancelled request cannot leak a lock.
//
// Unlock returns ErrLost if the lease was lost before, and nil if it was already
// unlocked. If the store does not answer in time, it returns an ErrUnavailable with an
// unknown outcome. It then retries in the background, for as long as the store may keep the
// lease. The last Unlock of a reentrant lease releases it.
func (l *Lease) Unlock() error {
	if l.isZero() {
		return errNoLease
	}
	h := l.h
	c := h.c
	now := c.clock.Check()
	again, last, lost, remains, counted := false, false, false, false, false
	var request driver.AcquireRequest
	err := h.update(func(s *leaseState) {
		if again = l.done; again {
			return
		}
		l.done = true
		h.handles--
		if last = h.handles == 0; !last {
			return
		}
		if s.isOver(now) {
			s.expire()
		}
		if lost = s.ended; lost {
			remains, request = s.mayRemainInStore(), s.acquireRequest(c.id, now)
			return
		}
		s.release()
		counted = c.work.Begin() // so that Close waits for it
	})
	switch {
	case again:
		return nil
	case !last:
		return err
	}
	defer h.dropToken().End()
	if lost {
		c.partlyLost.remove(h)
		if remains {
			c.releaseLost(h, request)
		} else {
			h.cancelUnanswered()
		}
		return err
	}
	err = c.releaseLease(h)
	if counted {
		c.work.Done()
	}
	if h.hooks != nil {
		h.hooks.callReleased(Released{LockInfo: h.hooks.lockInfo(h.token), Fence: l.Fence(), Held: c.clock.Now() - h.hooks.heldSince, Err: err})
	}
	return err
}

// Detach ends this lease without releasing the lock, which another owner has attached to:
// see Client.Attach. The contexts of the lease end, renewal stops, and Err returns
// ErrReleased. Neither Unlock nor Client.Close releases the lock afterwards. If nobody has
// attached, the lock stays until its TTL has passed. After a wait in the queue that is the
// hand-off TTL, at most 5 s, until the first renewal: call Extend before Detach.
//
// If a request for the lease had no answer, it may still arrive at the store, and acquire the
// name again after the new owner has unlocked. Detach waits until that is impossible, at most
// one operation timeout and 100 ms. The new owner must not unlock before Detach has returned.
//
// Detach returns ErrLost if the lease was lost before, and ErrReentrant if a nested call uses
// it, and nil if the lease was already unlocked or detached.
func (l *Lease) Detach() error {
	if l.isZero() {
		return errNoLease
	}
	h := l.h
	fence := l.Fence()
	for {
		if err := h.checkHeld(); err != nil {
			return err
		}
		again, nested, wait := false, false, time.Duration(0)
		_ = h.update(func(s *leaseState) {
			again, nested, wait = l.done, h.handles > 1, s.unansweredFor()
			if again || nested || wait > 0 {
				return
			}
			l.done, h.handles = true, 0
			s.release()
		})
		switch {
		case again:
			return nil
		case nested:
			return fmt.Errorf("%w: %q is used by a nested call", ErrReentrant, h.name)
		case wait > 0 && !work.Pause(h.c.work.Life(), wait):
			return ErrClosed
		}
		if wait <= 0 {
			break
		}
	}
	defer h.dropToken().End()
	if h.hooks != nil {
		h.hooks.callReleased(Released{LockInfo: h.hooks.lockInfo(h.token), Fence: fence, Held: h.c.clock.Now() - h.hooks.heldSince})
	}
	return nil
}

// checkHeld returns the error of a lost lease. It returns nil for a lease that is held, was
// released by its owner, or is attached and not confirmed.
func (h *lease) checkHeld() error {
	err := h.first.Err()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended && !errors.Is(err, ErrReleased) {
		return err
	}
	return nil
}

// checkExtendable returns why the lease cannot be extended, or nil.
func (h *lease) checkExtendable() error {
	err := h.first.Err()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return err
	}
	return nil
}

// recordExtension records that the store has extended the lease by ttl, from sent or
// later. Later renewals extend it by next.
func (h *lease) recordExtension(sent, ttl, next time.Duration) error {
	if !h.c.begin() {
		return cmp.Or(h.checkExtendable(), ErrClosed)
	}
	defer h.c.work.Done()
	now := h.c.clock.Now()
	h.listAttachedToken()
	return h.update(func(s *leaseState) {
		if !s.ended {
			s.confirm(now, sent, ttl, next)
		}
	})
}

// resign ends the contexts of a term, and all that will be derived from it, but not the
// lease itself: the work must end first. It returns false if the lease is not a term.
func (h *lease) resign(cause error) bool {
	h.mu.Lock()
	if !h.term || h.ended {
		h.mu.Unlock()
		return false
	}
	h.changeExtra().resigned = cause
	contexts := h.contexts.removeAll()
	h.mu.Unlock()
	for _, b := range contexts {
		b.cancel(cause)
	}
	return true
}
