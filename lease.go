package dibs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Lease is a held lock: a name, a share of it, or several names together. It is safe
// for concurrent use.
//
// The Client renews it until Unlock, unless NoRenew or MaxHold is set. A lease that is
// not renewed in time is lost. The holder knows first: Err reports the loss, and Context
// ends, before the store can grant the name to anyone else.
type Lease struct {
	h    *leaseState
	done bool // guarded by h.mu: this handle was unlocked
}

// leaseState is the state that the handles of one lease share: a reentrant call gets a
// second handle. A field never changes after its creation unless a comment says so.
type leaseState struct {
	c          *Client
	parent     context.Context // the context of the call, for its values
	first      Lease           // a field, to save an allocation
	name       string
	token      string
	unanswered *unansweredTry // unanswered acquires of this lease; merge adds some
	hooks      *hookCall      // nil if there are no hooks
	timeout    time.Duration  // of one operation

	// In the time of the clock:
	acquiredAt   time.Duration
	maxHoldUntil time.Duration // end of MaxHold, or never
	minHoldUntil time.Duration // end of MinHold, or zero
	rule         renewal

	ownToken bool // the caller has chosen the token and may use it again

	next scheduled // in the renewer of the client

	mu             sync.Mutex // guards the fields below; the renewer may be called while it is held
	fence          uint64
	moreNames      []fencedName // further names, held together with the first
	weight         int          // of limit
	limit          int
	resizing       int // not zero: the store may have another weight
	ttl            time.Duration
	deadline       time.Duration // the lease is lost at this time
	deadlineFrom   time.Duration // the request that set the deadline was sent at this time
	renewAt        time.Duration // time of the next renewal, or never
	handles        int
	err            error // why the lease has ended, or is not confirmed
	ended          bool
	expiredLocally bool     // the clock ended it, not an answer of the store
	term           bool     // the lease is a term of an election
	maxHoldReached bool     // MaxHold allows no further renewal
	renewErr       error    // of the last renewal; nil if it succeeded
	failureQueued  bool     // the RenewFailed hook is queued
	acquireEndDone bool     // the AcquireEnd hooks have returned
	pendingHooks   []func() // hooks that must run after AcquireEnd
	ctx            context.Context
	contexts       []*derivedContext // contexts that end with the lease
	renewing       bool
	lateResize     time.Time // a change to lateWeight may arrive at the store until then
	lateWeight     int
	resigned       error // the work must end, though the lease is held
}

// A fencedName is one of several names that a lease holds, with its fence.
type fencedName struct {
	name  string
	fence uint64
}

// renewal is how a lease is renewed.
type renewal uint8

const (
	renewed    renewal = iota // again and again
	extendOnce                // once, from a short first TTL to its own TTL
	fixed                     // never
)

// margin returns how long before the server's expiry a lease counts as lost. It is 2 % of
// the TTL, for clocks of different rates and late timers, and at least 2 ms.
func margin(ttl time.Duration) time.Duration { return max(ttl/50, 2*time.Millisecond) }

// Context returns a context that ends with the lease, with cause ErrLost if the lease was
// lost. It has the values of the context given to Lock, but not its deadline or
// cancellation, which limit the waiting only.
func (l *Lease) Context() context.Context {
	h := l.h
	h.mu.Lock()
	if h.ctx == nil {
		h.ctx, _ = h.derive(context.WithoutCancel(h.parent))
	}
	ctx := h.ctx
	h.mu.Unlock()
	return ctx
}

// A derivedContext is a context that ends with a lease.
type derivedContext struct {
	cancel context.CancelCauseFunc
	index  int // in the lease's contexts, or -1
}

// derive returns a child of ctx that carries the lease and ends with it. The caller holds
// h.mu.
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

// removeContext ends one context of the lease and removes it from the lease.
func (h *leaseState) removeContext(b *derivedContext) {
	h.mu.Lock()
	if b.index >= 0 {
		last := len(h.contexts) - 1
		h.contexts[b.index] = h.contexts[last]
		h.contexts[b.index].index = b.index
		h.contexts[last] = nil
		h.contexts = h.contexts[:last]
		b.index = -1
	}
	h.mu.Unlock()
	b.cancel(context.Canceled)
}

// removeContexts removes all contexts from the lease and returns them; the caller ends
// them. The caller holds h.mu.
func (h *leaseState) removeContexts() []*derivedContext {
	taken := h.contexts
	h.contexts = nil
	for _, b := range taken {
		b.index = -1
	}
	return taken
}

// Name returns the name that is held; of several, the one that was acquired first.
func (l *Lease) Name() string { return l.h.name }

// Fence returns the fence of the lease, its fencing token. It is larger than the fence of
// each earlier lease on the name. A resource that rejects writes with a smaller fence than
// it has seen is safe from holders that have not detected their loss. Fences are not
// consecutive. They are about the time in µs since 1970, and fit in a signed 64-bit column.
//
// The fence of an attached lease is zero, because only the call that acquired it received
// its fence: pass the fence on together with the token. For several names see FenceOf.
func (l *Lease) Fence() uint64 {
	h := l.h
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fence
}

// FenceOf returns the fence for one of the names that the lease holds. For any other name
// it returns zero.
func (l *Lease) FenceOf(name string) uint64 { return l.h.fenceOf(name) }

func (h *leaseState) fenceOf(name string) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
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

// Token returns the owner token, with which another process can Attach.
func (l *Lease) Token() string { return l.h.token }

// Deadline returns the time at which the lease is lost if it is not renewed. That is a
// little before the store's TTL ends: see docs/guarantees.md. For an
// attached lease it is the zero time until Extend has confirmed the lease.
func (l *Lease) Deadline() time.Time {
	h := l.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deadline == 0 {
		return time.Time{}
	}
	return time.Now().Add(h.deadline - h.c.clock.now())
}

// Err returns nil while the lease is held. Afterwards it returns ErrReleased if the lease
// was unlocked, and a *LostError if it was lost. It compares the clock itself, so it is
// correct even directly after the process was stopped. Call it just before a write that
// must not come late. (Only the fence can stop a write that is already in progress.)
func (l *Lease) Err() error {
	h := l.h
	h.mu.Lock()
	if h.err != nil || h.c.clock.check() < h.deadline {
		defer h.mu.Unlock()
		return h.err
	}
	e := h.expire()
	h.mu.Unlock()
	e.notify()
	return e.err
}

// Extend sets the remaining time of the lease to at least d, and makes d the TTL of later
// renewals. So pass the TTL that the lease is to have from now on. It never shortens a lease
// and never restores a lost one. d is from 10 ms to 24 h.
//
// Extend returns ErrLost if the lease is lost. If the outcome is unknown when ctx or the
// operation timeout ends, it returns ErrUnavailable, and the lease lasts as long as
// before or longer. On an attached lease, Extend confirms the lease and starts its
// renewal.
func (l *Lease) Extend(ctx context.Context, d time.Duration) error {
	h := l.h
	if err := checkTTL(h.name, d); err != nil {
		return err
	}
	if err := h.checkExtendable(); err != nil {
		return err
	}
	var lost string // the name
	var sent time.Duration
	err := h.c.retry(ctx, time.Now().Add(h.timeout), func(a attempt) (err error) {
		sent = a.sent
		h.mu.Lock()
		requests := h.extendRequests(nil, h.capTTL(sent, d))
		h.mu.Unlock()
		lost, err = h.extendResult(h.c.store.Extend(ctx, a.until, requests))
		return err
	})
	switch {
	case err == nil:
		return h.recordExtension(sent, h.capTTL(sent, d), d)
	case errors.Is(err, ErrLost):
		return h.lose(lost, ReasonTaken, nil)
	default:
		return err
	}
}

// extendRequests appends the requests that extend the lease by ttl. The caller holds
// h.mu.
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

// extendResult combines the results of the names of one lease. The first name that is
// lost decides; else a name with an unknown outcome.
func (h *leaseState) extendResult(errs []error) (name string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
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

// Unlock releases the lock. The store grants it to the first waiter in the same step.
// Unlock takes no context: it has its own time limit, the operation timeout, so a
// cancelled request cannot leak a lock.
//
// Unlock returns ErrLost if the lease was lost before, and nil if it was already
// unlocked. If the store does not answer in time, it returns an ErrUnavailable with an
// unknown outcome, and retries in the background until the TTL has passed. The last
// Unlock of a reentrant lease releases it.
func (l *Lease) Unlock() error {
	h := l.h
	c := h.c
	h.mu.Lock()
	if l.done {
		h.mu.Unlock()
		return nil
	}
	l.done = true
	h.handles--
	if h.handles > 0 {
		err := h.err
		h.mu.Unlock()
		return err
	}
	var e leaseEnd
	if h.err == nil && c.clock.now() >= h.deadline {
		e = h.expire()
	}
	if h.ended {
		err, remains, request := h.err, h.mayRemainInStore(), h.acquireRequest()
		h.mu.Unlock()
		c.renewer.removePartlyLost(h)
		e.notify()
		if remains {
			c.releaseLost(h, request)
		} else {
			h.cancelUnanswered()
		}
		return err
	}
	e = h.endReleased()
	counted := c.work.begin() // so that Close waits for it
	h.mu.Unlock()
	e.notify()
	err := c.releaseLease(h)
	if counted {
		c.work.done()
	}
	if h.hooks != nil {
		h.hooks.callReleased(Released{LockInfo: h.hooks.lockInfo(h.token), Fence: l.Fence(), Held: c.clock.now() - h.hooks.heldSince, Err: err})
	}
	return err
}

// Detach ends this lease without releasing the lock, which another owner has attached to:
// see Client.Attach. The contexts of the lease end, renewal stops, and Err returns
// ErrReleased. Neither Unlock nor Client.Close releases the lock afterwards. If nobody has
// attached, the lock stays until its TTL has passed.
//
// Detach returns ErrLost if the lease was lost before, ErrReentrant if a nested call uses
// it, and nil if it was already unlocked or detached.
func (l *Lease) Detach() error {
	h := l.h
	if err := h.checkHeld(); err != nil {
		return err
	}
	h.mu.Lock()
	if l.done {
		h.mu.Unlock()
		return nil
	}
	if h.handles > 1 {
		h.mu.Unlock()
		return fmt.Errorf("%w: %q is used by a nested call", ErrReentrant, h.name)
	}
	l.done, h.handles = true, 0
	e := h.endReleased()
	fence := h.fence
	h.mu.Unlock()
	e.notify()
	if h.hooks != nil {
		h.hooks.callReleased(Released{LockInfo: h.hooks.lockInfo(h.token), Fence: fence, Held: h.c.clock.now() - h.hooks.heldSince})
	}
	return nil
}

// checkHeld returns the error of a lost lease. It returns nil for a lease that is held, was
// released by its owner, or is attached and not confirmed.
func (h *leaseState) checkHeld() error {
	err := h.first.Err()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended && !errors.Is(err, ErrReleased) {
		return err
	}
	return nil
}

// mayRemainInStore reports whether the store may still have some of an ended lease. There
// are three cases: a late renewal succeeded, other names are left, or a minority of
// quorum nodes still has what the majority has lost. The caller holds h.mu.
func (h *leaseState) mayRemainInStore() bool {
	var lost *LostError
	return h.expiredLocally || len(h.moreNames) > 0 || errors.As(h.err, &lost) && lost.Reason == ReasonTaken
}

// checkExtendable returns why the lease cannot be extended, or nil.
func (h *leaseState) checkExtendable() error {
	err := h.first.Err()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return err
	}
	return nil
}

// capTTL limits the TTL of a renewal that is sent now to the end of MaxHold.
func (h *leaseState) capTTL(now, ttl time.Duration) time.Duration {
	return max(min(ttl, h.maxHoldUntil-now), time.Millisecond)
}

// recordExtension records that the store has extended the lease by ttl, from sent or
// later.
func (h *leaseState) recordExtension(sent, ttl, next time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return h.err
	}
	if h.c.work.isClosed() {
		return ErrClosed
	}
	h.c.start()
	h.err, h.renewErr = nil, nil
	h.ttl = next
	h.extendDeadline(sent, ttl)
	if !h.schedule() {
		return ErrClosed
	}
	return nil
}

// extendDeadline sets the deadline and the next renewal. The store has confirmed ttl for
// a request that was sent at sent. The caller holds h.mu.
func (h *leaseState) extendDeadline(sent, ttl time.Duration) {
	if end := sent + ttl - margin(ttl); end > h.deadline {
		h.deadline, h.deadlineFrom = end, sent
	}
	h.renewAt = never
	h.maxHoldReached = h.maxHoldReached || sent+ttl >= h.maxHoldUntil
	if h.rule == renewed && !h.maxHoldReached {
		h.renewAt = sent + min(ttl, h.ttl)/3 // with MinHold, ttl may be longer than h.ttl
	}
}

// acquireRequest returns the request of the lease, as far as a cancel needs it. The
// caller holds h.mu.
func (h *leaseState) acquireRequest() driver.AcquireRequest {
	c := driver.AcquireRequest{Name: h.name, Token: h.token, Client: h.c.id, TTL: h.ttl, Weight: h.weight, Limit: h.limit}
	for _, p := range h.moreNames {
		c.With = append(c.With, p.name)
	}
	return c
}

// A leaseEnd is the work that follows the end of a lease and must not hold h.mu.
type leaseEnd struct {
	h        *leaseState
	err      error // why the lease has ended
	lost     bool
	reason   Reason
	contexts []*derivedContext
}

// endReleased ends the lease at its Unlock. The caller holds h.mu, and calls notify after
// unlocking it.
func (h *leaseState) endReleased() leaseEnd {
	if h.ended {
		return leaseEnd{err: h.err}
	}
	h.ended = true
	h.err = releasedError{h.name}
	h.c.renewer.remove(h)
	return leaseEnd{h: h, err: h.err, contexts: h.removeContexts()}
}

// end ends the lease before its Unlock. The caller holds h.mu, and calls notify after
// unlocking it.
func (h *leaseState) end(name string, why Reason, cause error) leaseEnd {
	if h.ended {
		return leaseEnd{err: h.err}
	}
	h.ended = true
	h.err = &LostError{Name: name, Token: h.token, Reason: why, Cause: cause}
	h.c.renewer.remove(h)
	if len(h.moreNames) > 0 && why != ReasonClosed {
		h.c.renewer.keepPartlyLost(h) // until the work has ended
	}
	e := leaseEnd{h: h, err: h.err, lost: true, reason: why, contexts: h.removeContexts()}
	return e
}

// endClosed ends the lease because of Close. It returns false if the lease had ended
// before.
func (h *leaseState) endClosed() bool {
	h.mu.Lock()
	e := h.end(h.name, ReasonClosed, nil)
	h.mu.Unlock()
	e.notify()
	return e.lost
}

// endRevoked ends the lease for the reason of an operator. The caller holds h.mu, and calls
// notify after unlocking it.
func (h *leaseState) endRevoked(name, reason string) leaseEnd {
	e := h.end(name, ReasonRevoked, nil)
	var lost *LostError
	if e.lost && errors.As(h.err, &lost) {
		lost.Message = reason
	}
	return e
}

// expire ends a lease whose deadline has passed. The caller holds h.mu.
func (h *leaseState) expire() leaseEnd {
	h.expiredLocally = true
	if h.maxHoldReached {
		return h.end(h.name, ReasonMaxHold, nil)
	}
	return h.end(h.name, ReasonExpired, h.renewErr)
}

// lose ends the lease because one of its names is lost.
func (h *leaseState) lose(name string, why Reason, cause error) error {
	h.mu.Lock()
	e := h.end(name, why, cause)
	h.mu.Unlock()
	e.notify()
	return e.err
}

// resign ends the contexts of a term, and all that will be derived from it, but not the
// lease itself: the work must end first. It returns false if the lease is not a term.
func (h *leaseState) resign(cause error) bool {
	h.mu.Lock()
	if !h.term || h.ended {
		h.mu.Unlock()
		return false
	}
	h.resigned = cause
	contexts := h.removeContexts()
	h.mu.Unlock()
	for _, b := range contexts {
		b.cancel(cause)
	}
	return true
}

// notify ends the contexts of the lease and queues its Lost hooks.
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

// queueLostHook queues the Lost hooks.
func (e leaseEnd) queueLostHook() {
	h := e.h
	if h == nil || !e.lost || h.hooks == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	lost := Lost{LockInfo: h.hooks.lockInfo(h.token), Fence: h.fence, Held: h.c.clock.now() - h.hooks.heldSince, Reason: e.reason, Err: e.err}
	h.queueHook(true, func() { h.hooks.callLost(lost) })
}
