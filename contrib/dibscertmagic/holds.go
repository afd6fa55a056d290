package dibscertmagic

import (
	"context"
	"slices"
	"sync"

	"github.com/dibslock/dibs"
)

// holds contains the names that this process's goroutines hold or acquire.
//
// CertMagic unlocks by name, so a name must not have two holders in this process. This includes a
// holder whose lease is lost while its work still runs. So a goroutine reserves the name here
// before it acquires the lock.
type holds struct {
	mu     sync.Mutex
	byName map[string]*hold
}

type hold struct {
	lease   *dibs.Lease     // nil while it is acquired
	waiting []chan struct{} // goroutines, in their order; closed when the reservation is theirs
}

// reserve waits until the name is reserved for this call, or ctx ends. Goroutines are served
// in their order.
func (h *holds) reserve(ctx context.Context, name string) error {
	turn := h.join(name)
	if turn == nil {
		return nil
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		h.leave(name, turn)
		return &dibs.BusyError{Name: dibsName(name), Cause: context.Cause(ctx)}
	}
}

// join reserves the name and returns nil, or joins the name's waiters.
func (h *holds) join(name string) (turn chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tryReserveLocked(name) {
		return nil
	}
	turn = make(chan struct{})
	current := h.byName[name]
	current.waiting = append(current.waiting, turn)
	return turn
}

// leave ends a wait, whose turn may have come at the same time.
func (h *holds) leave(name string, turn chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	current := h.byName[name]
	if i := slices.Index(current.waiting, turn); i >= 0 {
		current.waiting = slices.Delete(current.waiting, i, i+1)
	} else {
		h.next(name)
	}
}

// tryReserve reserves the name if no goroutine reserved it.
func (h *holds) tryReserve(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tryReserveLocked(name)
}

// tryReserveLocked is tryReserve. The caller must hold the mutex.
func (h *holds) tryReserveLocked(name string) bool {
	if h.byName[name] != nil {
		return false
	}
	if h.byName == nil {
		h.byName = make(map[string]*hold)
	}
	h.byName[name] = &hold{}
	return true
}

// next gives a name's reservation to the first waiter, or removes the name. The caller must hold
// the mutex.
func (h *holds) next(name string) {
	current := h.byName[name]
	if len(current.waiting) == 0 {
		delete(h.byName, name)
		return
	}
	close(current.waiting[0])
	current.lease, current.waiting = nil, current.waiting[1:]
}

// lease returns the lease on a name, or nil.
func (h *holds) lease(name string) *dibs.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	if current := h.byName[name]; current != nil {
		return current.lease
	}
	return nil
}

// replace replaces the lease on a reserved name. It returns false if the old lease is not there any
// more.
func (h *holds) replace(name string, old, lease *dibs.Lease) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	current := h.byName[name]
	if current == nil || current.lease != old {
		return false
	}
	current.lease = lease
	return true
}

// remove ends a name's reservation with this lease, or with nil. It returns false if another call
// did.
func (h *holds) remove(name string, lease *dibs.Lease) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	current := h.byName[name]
	if current == nil || current.lease != lease {
		return false
	}
	h.next(name)
	return true
}
