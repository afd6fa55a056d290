package dibs

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Lease is a name held, or a part of it, or several names together. It is safe
// for concurrent use.
//
// It is renewed until Unlock, unless NoRenew or MaxHold say otherwise, and is
// lost if that fails. The holder knows first: Err tells the loss, and Context
// ends, before the store may give the name to anyone else.
type Lease struct {
	h    *leaseState
	done bool // guarded by h.c.mu: this handle was unlocked
}

// hold is the state that the handles of one lease share: a reentrant call gets
// a second handle. Fields without a note never change after it was made.
type leaseState struct {
	c          *Client
	parent     context.Context // of the call, for its values
	first      Lease           // kept here to save an allocation
	name       string
	token      string
	unanswered *unansweredTry // acquires of this lease that were not answered; absorb adds some
	hooks      *Hooks
	timeout    time.Duration // of one operation

	// In the client's time:
	acquiredAt   time.Duration
	maxHoldUntil time.Duration // MaxHold ends it then, or never
	minHoldUntil time.Duration // MinHold keeps the name taken until then
	rule         renewal

	ownToken bool // the caller has chosen the token, and may use it again

	// Guarded by c.mu:
	fence            uint64
	moreNames        []fencedName // further names, held together with the first
	weight           int          // of limit
	limit            int
	resizing         int // not zero: the store may know another weight
	ttl              time.Duration
	deadline         time.Duration // the lease is lost then
	renewAt          time.Duration // the next renewal, or never
	index            int           // in c.leases, or -1
	handles          int
	err              error // why it is over, or not yet begun
	ended            bool
	expiredLocally   bool     // over by the clock, not by the store's word
	term             bool     // of an election
	maxHoldReached   bool     // MaxHold allows no further renewal
	renewErr         error    // of the last renewal, nil if it went well
	failureQueued    bool     // the hook for that is queued
	acquiredHookDone bool     // the Acquired hook has returned
	pendingHooks     []func() // hooks that wait for that
	ctx              context.Context
	contexts         []*derivedContext // contexts that end with the lease
	renewing         bool
	lateResize       time.Time // a change to lateWeight may arrive at the store until then
	lateWeight       int
	resigned         error // the work was asked to end, though the name is held
}

// A part is one of several names that a lease holds.
type fencedName struct {
	name  string
	fence uint64
}

// renewal says how a lease is kept alive.
type renewal uint8

const (
	renewed    renewal = iota // again and again
	extendOnce                // once, from the TTL of a hand-off to its own
	fixed                     // not at all
)

// margin is how long before the server's TTL ends a lease counts as lost: 2 % of
// the TTL for clocks that run at different rates and timers that are late, and
// at least 2 ms.
func margin(ttl time.Duration) time.Duration { return max(ttl/50, 2*time.Millisecond) }

// Context ends with the lease: with cause ErrLost if it was lost. It keeps the
// values of the context given to Lock, not its deadline or cancellation, which
// bound the waiting only.
func (l *Lease) Context() context.Context {
	h := l.h
	h.c.mu.Lock()
	if h.ctx == nil {
		h.ctx, _ = h.derive(context.WithoutCancel(h.parent))
	}
	ctx := h.ctx
	h.c.mu.Unlock()
	return ctx
}

// A branch is a context that ends with a lease.
type derivedContext struct {
	cancel context.CancelCauseFunc
	index  int // in the lease's branches, or -1
}

// derive returns a child of ctx that carries the lease and ends with it. The
// caller holds c.mu.
func (h *leaseState) derive(ctx context.Context) (context.Context, *derivedContext) {
	ctx, cancel := context.WithCancelCause(carry(ctx, h))
	b := &derivedContext{cancel: cancel, index: -1}
	switch {
	case h.ended:
		cancel(h.err)
	case h.resigned != nil:
		cancel(h.resigned)
	default:
		b.index = len(h.contexts)
		h.contexts = append(h.contexts, b)
	}
	return ctx, b
}

// cut ends one context of the lease, unless it has ended, and forgets it.
func (h *leaseState) removeContext(b *derivedContext) {
	h.c.mu.Lock()
	if b.index >= 0 {
		last := len(h.contexts) - 1
		h.contexts[b.index] = h.contexts[last]
		h.contexts[b.index].index = b.index
		h.contexts[last] = nil
		h.contexts = h.contexts[:last]
		b.index = -1
	}
	h.c.mu.Unlock()
	b.cancel(context.Canceled)
}

// takeBranches removes all contexts from the lease, and returns them to be ended. The
// caller holds c.mu.
func (h *leaseState) removeContexts() []*derivedContext {
	taken := h.contexts
	h.contexts = nil
	for _, b := range taken {
		b.index = -1
	}
	return taken
}

// Name returns the name that is held: of several, the first that was taken.
func (l *Lease) Name() string { return l.h.name }

// Fence returns the lease's fence: larger than that of each earlier lease on the
// name. A resource that refuses writes with a smaller fence than it has seen is
// safe from holders that do not know yet that they lost. It is zero for an
// attached lease, whose fence only its first owner knows. For several names see
// FenceOf.
func (l *Lease) Fence() uint64 {
	h := l.h
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	return h.fence
}

// FenceOf returns the fence for one of the names that the lease holds, and zero
// for any other name.
func (l *Lease) FenceOf(name string) uint64 { return l.h.fenceOf(name) }

func (h *leaseState) fenceOf(name string) uint64 {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	if name == h.name {
		return h.fence
	}
	for _, p := range h.moreNames {
		if p.name == name {
			return p.fence
		}
	}
	return 0
}

// Token returns the owner's identity, by which another process can Attach.
func (l *Lease) Token() string { return l.h.token }

// Deadline returns when the lease is lost unless it is renewed before. It is the
// zero time for an attached lease that was not extended yet.
func (l *Lease) Deadline() time.Time {
	h := l.h
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	if h.deadline == 0 {
		return time.Time{}
	}
	return time.Now().Add(h.deadline - h.c.now())
}

// Err returns nil while the name is held, and a *LostError afterwards: also after
// Unlock, with Why Released. It compares the clock itself, so that the first
// instruction after the process was stopped sees the truth; ask it just before
// a write that must not come late. (A write that is under way already, only the
// fence can stop.)
func (l *Lease) Err() error {
	h := l.h
	h.c.mu.Lock()
	if h.err != nil || h.c.checkClock() < h.deadline {
		defer h.c.mu.Unlock()
		return h.err
	}
	e := h.expire()
	h.c.mu.Unlock()
	e.notify()
	return e.err
}

// Extend prolongs the lease to at least d from now, and makes d the TTL of later
// renewals. It never shortens a lease and never brings back one that is lost. If
// the outcome stays unknown until ctx or the operation timeout ends, it returns
// ErrUnavailable and the lease is as it was, or longer. On an attached lease it is
// what takes the lease over: it confirms the lease and begins to renew it.
func (l *Lease) Extend(ctx context.Context, d time.Duration) error {
	h := l.h
	if err := checkTTL(h.name, d); err != nil {
		return err
	}
	if err := h.checkExtendable(); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	for try := 0; ; try++ {
		sent := h.c.checkClock()
		ttl := h.capTTL(sent, d)
		h.c.mu.Lock()
		holds := h.extendRequests(nil, ttl)
		h.c.mu.Unlock()
		name, err := h.extendResult(h.c.store.Extend(within, holds))
		h.c.observeHealth(ctx, err)
		switch {
		case err == nil:
			return h.recordExtension(sent, ttl, d)
		case errors.Is(err, ErrLost):
			return h.lose(name, ReasonTaken, nil)
		case refused(err) || permanent(err):
			return err
		}
		if !pause(within, backoff(try)) {
			return err
		}
	}
}

// holds appends what the store is asked to extend. The caller holds c.mu.
func (h *leaseState) extendRequests(to []driver.ExtendRequest, ttl time.Duration) []driver.ExtendRequest {
	one := driver.ExtendRequest{Name: h.name, Token: h.token, Client: h.c.id, Fence: h.fence, TTL: ttl}
	if h.resizing == 0 {
		one.Weight, one.Limit = h.weight, h.limit
	}
	to = append(to, one)
	for _, p := range h.moreNames {
		one.Name, one.Fence = p.name, p.fence
		to = append(to, one)
	}
	return to
}

// outcome sums up what the store said of each name of a lease: one that is lost
// decides, and which; else one that is unknown.
func (h *leaseState) extendResult(errs []error) (name string, err error) {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	for i, e := range errs {
		if e != nil && !errors.Is(err, ErrLost) {
			err, name = e, h.name
			if i > 0 {
				name = h.moreNames[i-1].name
			}
		}
	}
	return name, err
}

// Unlock gives the name back, to the first waiter if there is one. It needs no
// context: it has its own time budget, the operation timeout, so that a cancelled
// request cannot leak a lock.
//
// It returns ErrLost if the lease was lost before, and nil if it was unlocked
// before. If the store does not answer in time it returns an ErrUnavailable that
// says that the outcome is unknown, and goes on trying in the background until
// the TTL has passed. A reentrant lease is given back by its last Unlock.
func (l *Lease) Unlock() error {
	h := l.h
	c := h.c
	c.mu.Lock()
	if l.done {
		c.mu.Unlock()
		return nil
	}
	l.done = true
	h.handles--
	if h.handles > 0 {
		err := h.err
		c.mu.Unlock()
		return err
	}
	var e leaseEnd
	if h.err == nil && c.now() >= h.deadline {
		e = h.expire()
	}
	if h.ended {
		err, leave, claim := h.err, h.mayRemainInStore(), h.acquireRequest()
		delete(c.partlyLost, h)
		c.mu.Unlock()
		e.notify()
		if leave {
			c.releaseLost(h, claim)
		} else {
			h.cancelUnanswered()
		}
		return err
	}
	e = h.endReleased()
	c.jobs++ // Close waits for it
	c.mu.Unlock()
	e.notify()
	err := c.releaseLease(h)
	c.jobDone()
	if h.hooks != nil && h.hooks.Released != nil {
		h.hooks.Released(Freed{Name: h.name, Token: h.token, Held: c.now() - h.acquiredAt, Err: err})
	}
	return err
}

// leftovers reports whether the store may still have something of a lease that is over:
// it may have renewed it after all, other names may be left, and a few nodes of a quorum
// may hold for it what most have lost. The caller holds c.mu.
func (h *leaseState) mayRemainInStore() bool {
	var lost *LostError
	return h.expiredLocally || len(h.moreNames) > 0 || errors.As(h.err, &lost) && lost.Reason == ReasonTaken
}

// alive returns why the lease cannot be extended, or nil.
func (h *leaseState) checkExtendable() error {
	err := h.first.Err()
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	if h.ended {
		return err
	}
	return nil
}

// cap bounds the TTL of a renewal that is sent now by MaxHold.
func (h *leaseState) capTTL(now, ttl time.Duration) time.Duration {
	return max(min(ttl, h.maxHoldUntil-now), time.Millisecond)
}

// confirm records that the store has prolonged the lease by ttl, not before sent.
func (h *leaseState) recordExtension(sent, ttl, next time.Duration) error {
	c := h.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.ended {
		return h.err
	}
	if c.closed {
		return ErrClosed
	}
	c.start()
	h.err, h.renewErr = nil, nil
	h.ttl = next
	h.extendDeadline(sent, ttl)
	c.schedule(h)
	return nil
}

// prolong sets the deadline and the next renewal after the store has confirmed
// ttl for a request sent then. The caller holds c.mu.
func (h *leaseState) extendDeadline(sent, ttl time.Duration) {
	h.deadline = max(h.deadline, sent+ttl-margin(ttl))
	h.renewAt = never
	h.maxHoldReached = h.maxHoldReached || sent+ttl >= h.maxHoldUntil
	if h.rule == renewed && !h.maxHoldReached {
		h.renewAt = sent + min(ttl, h.ttl)/3 // MinHold may have the longer ttl
	}
}

// claim is what the lease was acquired with, as far as undoing it needs. The caller
// holds c.mu.
func (h *leaseState) acquireRequest() driver.AcquireRequest {
	c := driver.AcquireRequest{Name: h.name, Token: h.token, Client: h.c.id, TTL: h.ttl, Weight: h.weight, Limit: h.limit}
	for _, p := range h.moreNames {
		c.With = append(c.With, p.name)
	}
	return c
}

// An ending is what is left to do, without the mutex, when a lease has ended.
type leaseEnd struct {
	h        *leaseState
	err      error // nil if it had ended before
	lost     bool
	contexts []*derivedContext
}

// endReleased ends the lease at its Unlock. The caller holds c.mu and calls notify
// without it.
func (h *leaseState) endReleased() leaseEnd {
	if h.ended {
		return leaseEnd{err: h.err}
	}
	h.ended = true
	h.err = releasedError{h.name}
	h.c.unschedule(h)
	return leaseEnd{h: h, err: h.err, contexts: h.removeContexts()}
}

// end ends the lease before its Unlock. The caller holds c.mu and calls tell without it.
func (h *leaseState) end(name string, why Reason, cause error) leaseEnd {
	if h.ended {
		return leaseEnd{err: h.err}
	}
	h.ended = true
	h.err = &LostError{Name: name, Token: h.token, Reason: why, Cause: cause}
	h.c.unschedule(h)
	if len(h.moreNames) > 0 && why != ReasonClosed {
		h.c.partlyLost[h] = struct{}{} // until the work has ended
	}
	e := leaseEnd{h: h, err: h.err, lost: true, contexts: h.removeContexts()}
	return e
}

// expire ends a lease whose deadline has passed. The caller holds c.mu.
func (h *leaseState) expire() leaseEnd {
	h.expiredLocally = true
	if h.maxHoldReached {
		return h.end(h.name, ReasonMaxHold, nil)
	}
	return h.end(h.name, ReasonExpired, h.renewErr)
}

// lose ends the lease, because of one of its names, and tells it.
func (h *leaseState) lose(name string, why Reason, cause error) error {
	h.c.mu.Lock()
	e := h.end(name, why, cause)
	h.c.mu.Unlock()
	e.notify()
	return e.err
}

// yield ends the contexts of the lease, and what will be derived from it, but not
// the lease: its work is to end.
func (h *leaseState) resign(cause error) []*derivedContext {
	h.resigned = cause
	return h.removeContexts()
}

// tell ends the contexts of the lease and queues its hook.
func (e leaseEnd) notify() {
	e.cancel()
	e.queueLostHook()
}

func (e leaseEnd) cancel() {
	cause := e.err
	if !e.lost {
		cause = context.Canceled
	}
	for _, b := range e.contexts {
		b.cancel(cause)
	}
}

// report queues the hook for a loss.
func (e leaseEnd) queueLostHook() {
	h := e.h
	if h == nil || !e.lost || h.hooks == nil || h.hooks.Lost == nil {
		return
	}
	lost := Lost{Name: h.name, Token: h.token, Err: e.err}
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.queueHook(true, func() { h.hooks.Lost(lost) })
}
