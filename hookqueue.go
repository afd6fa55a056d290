package dibs

import (
	"context"
	"sync"
)

// maxQueued is how many hooks may wait for a slow one.
const maxQueued = 10_000

// A hookQueue calls the hooks of background events one after another, in a goroutine that
// exists only while there is one to call. So a hook that is slow, or that never returns,
// delays only other hooks.
type hookQueue struct {
	mu    sync.Mutex
	calls []func()
	idle  chan struct{} // closed when all calls have returned; nil while there is none
}

// add queues a call. If too many calls wait, it drops a call that is not important and
// returns false.
func (q *hookQueue) add(important bool, call func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) >= maxQueued && !important {
		return false
	}
	q.calls = append(q.calls, call)
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.run()
	}
	return true
}

func (q *hookQueue) run() {
	exits := true
	defer func() {
		if exits { // a hook has called runtime.Goexit: the others must still be called
			go q.run()
		}
	}()
	for call := q.next(); call != nil; call = q.next() {
		call()
	}
	exits = false
}

// next returns the first call, or nil if there is none.
func (q *hookQueue) next() func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) == 0 {
		close(q.idle)
		q.idle, q.calls = nil, nil
		return nil
	}
	call := q.calls[0]
	q.calls[0] = nil
	q.calls = q.calls[1:]
	return call
}

// wait waits until all calls have returned, or ctx has ended.
func (q *hookQueue) wait(ctx context.Context) {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// callAcquiredHook calls the Acquired hook of a lease, if there is one, and then queues
// the hooks of the lease that had to wait for it.
func (h *leaseState) callAcquiredHook(a Acquired) {
	if h.hooks != nil && h.hooks.Acquired != nil {
		h.hooks.Acquired(a)
	}
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.acquiredHookDone = true
	for _, call := range h.pendingHooks {
		h.c.hooks.add(true, call)
	}
	h.pendingHooks = nil
}

// queueHook queues a hook of a lease, or returns false. The caller holds c.mu.
func (h *leaseState) queueHook(important bool, call func()) bool {
	if !h.acquiredHookDone {
		h.pendingHooks = append(h.pendingHooks, call) // at most one Lost and one RenewFailed
		return true
	}
	return h.c.hooks.add(important, call)
}

// queueRenewFailed queues the RenewFailed hook, unless it is queued already. The caller
// holds c.mu.
func (h *leaseState) queueRenewFailed() {
	if h.hooks == nil || h.hooks.RenewFailed == nil || h.failureQueued {
		return
	}
	h.failureQueued = h.queueHook(false, func() {
		h.c.mu.Lock()
		h.failureQueued = false
		ended := h.ended
		failed := RenewFailed{Name: h.name, Token: h.token, Left: h.deadline - h.c.now(), Err: h.renewErr}
		h.c.mu.Unlock()
		if !ended && failed.Err != nil {
			h.hooks.RenewFailed(failed)
		}
	})
}
