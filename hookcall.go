package dibs

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/internal/work"
)

// A hookCall calls the hooks for a call and its lease. It is nil if there are no hooks.
type hookCall struct {
	chain  *hookChain
	parent context.Context // the caller's context
	values work.Values     // AcquireStart's result, without its end: for the hooks
	info   LockInfo        // without the token
	name   [1]string       // backs info.Names for a single name
	queued bool            // the call has joined a wait queue; used by its goroutine only

	first leaseHooks // for the first lease, to save an allocation
}

// leaseHooks calls the hooks for a lease. A call that acquires in parts makes a lease for each
// part, and merges them.
type leaseHooks struct {
	*hookCall
	failureQueued  atomic.Bool // the RenewFailed hook is queued
	acquireEndDone bool        // the AcquireEnd hooks returned; guarded by the lease's lock
	pending        []func()    // hooks to run after AcquireEnd; guarded likewise

	// heldSince is when the caller received the lease. TTLs begin earlier, with the request. It is
	// set before anything can end the lease.
	heldSince time.Duration
}

// forLease returns a lease's hooks, or nil if there are no hooks.
func (hc *hookCall) forLease() *leaseHooks {
	if hc == nil {
		return nil
	}
	h := &hc.first
	if h.hookCall != nil {
		h = new(leaseHooks)
	}
	h.hookCall = hc
	return h
}

func newHookCall(ctx context.Context, client string, w lockSpec, set *settings) *hookCall {
	if set.hooks == nil {
		return nil
	}
	hc := &hookCall{
		chain: set.hooks, parent: ctx, values: work.Values{Of: ctx}, name: [1]string{w.name},
		info: LockInfo{
			Client: client, Kind: w.kind, Label: set.label, Exclusive: w.limit > 0 && w.weight == w.limit, Weight: w.weight, Limit: w.limit,
		},
	}
	if hc.info.Names = hc.name[:]; len(w.with) > 0 {
		hc.info.Names = w.names()
	}
	return hc
}

// context returns the call's context: AcquireStart's result.
func (hc *hookCall) context() context.Context { return hc.values.Of }

// lockInfo returns the events' common fields, for an owner token.
func (hc *hookCall) lockInfo(token string) LockInfo {
	info := hc.info
	info.Token = Token(token)
	return info
}

// startHooks calls the AcquireStart hooks of a call, if there are hooks.
func startHooks(ctx context.Context, client string, w lockSpec, set *settings) *hookCall {
	hc := newHookCall(ctx, client, w, set)
	if hc == nil {
		return nil
	}
	start := AcquireStart{LockInfo: hc.info, Try: set.limit.attempts == 0 && set.limit.wait == 0}
	hc.chain.each(func(hooks *Hooks) {
		if hooks.AcquireStart == nil {
			return
		}
		if ctx := hooks.AcquireStart(hc.context(), start); ctx != nil {
			hc.values.Of = ctx
		}
	})
	return hc
}

// callQueued calls the Queued hooks in a separate goroutine, because a slow hook must not delay the
// call's heartbeats. It returns a channel that is closed when they return.
func (hc *hookCall) callQueued(e Queued) <-chan struct{} {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		callHooks(hc, e, func(hooks *Hooks) func(context.Context, Queued) { return hooks.Queued })
	}()
	return returned
}

// callHooks calls a hook at each level with an event.
func callHooks[E any](hc *hookCall, e E, hook func(*Hooks) func(context.Context, E)) {
	hc.chain.each(func(hooks *Hooks) {
		if f := hook(hooks); f != nil {
			f(&hc.values, e)
		}
	})
}

// acquireEnded queues the lease's hooks that waited for AcquireEnd.
func (h *leaseHooks) acquireEnded(l *lease) {
	if h == nil { // a nested call's hooks are not the lease's
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h.acquireEndDone = true
	for _, call := range h.pending {
		l.c.hooks.Add(true, call)
	}
	h.pending = nil
}

// queue queues a lease's hook, or returns false. In the goroutine of renewals, a RenewFailed hook
// of 50 ms turned an outage of 2 s into 120 lost leases of 512. Hooks of calls are not queued: a
// full queue would drop them, and counters would be wrong.
func (h *leaseHooks) queue(l *lease, important bool, call func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !h.acquireEndDone {
		h.pending = append(h.pending, call) // at most one Lost and one RenewFailed
		return true
	}
	return l.c.hooks.Add(important, call)
}

// released calls the Released hooks with the release's result.
func (h *leaseHooks) released(l *lease, err error) {
	if h == nil {
		return
	}
	e := Released{LockInfo: h.lockInfo(l.state.Token), Fence: l.first.Fence(), Held: l.c.clock.Now() - h.heldSince, Err: err}
	callHooks(h.hookCall, e, func(hooks *Hooks) func(context.Context, Released) { return hooks.Released })
}

// lost queues the Lost hooks.
func (h *leaseHooks) lost(l *lease, lost *LostError) {
	if h == nil {
		return
	}
	e := Lost{LockInfo: h.lockInfo(string(lost.Token)), Fence: l.first.Fence(), Held: l.c.clock.Now() - h.heldSince, Reason: lost.Reason, Err: lost}
	h.queue(l, true, func() {
		callHooks(h.hookCall, e, func(hooks *Hooks) func(context.Context, Lost) { return hooks.Lost })
	})
}

// renewFailed queues the RenewFailed hooks, unless they are queued already.
func (h *leaseHooks) renewFailed(l *lease) {
	if h == nil || !h.failureQueued.CompareAndSwap(false, true) {
		return
	}
	queued := h.queue(l, false, func() {
		h.failureQueued.Store(false)
		s := l.LockState()
		ended := s.Reason().IsEnd()
		e := RenewFailed{LockInfo: h.lockInfo(s.Token), Left: s.Times.Deadline() - l.c.clock.Now(), Err: public(s.Times.RenewErr())}
		l.UnlockState()
		if !ended && e.Err != nil {
			callHooks(h.hookCall, e, func(hooks *Hooks) func(context.Context, RenewFailed) { return hooks.RenewFailed })
		}
	})
	if !queued {
		h.failureQueued.Store(false)
	}
}
