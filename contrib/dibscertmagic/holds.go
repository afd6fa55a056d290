package dibscertmagic

import (
	"context"
	"sync"

	"github.com/dibslock/dibs"
)

// holds are the names that goroutines of this process hold or acquire.
//
// CertMagic unlocks by name, so a name must not have two holders in this process. That
// includes a holder whose lease is lost while its work still runs. So a goroutine reserves
// the name here before it acquires the lock.
type holds struct {
	mu     sync.Mutex
	byName map[string]*hold
}

type hold struct {
	lease *dibs.Lease   // nil while it is acquired
	ended chan struct{} // closed when the name is removed
}

// reserve waits until no goroutine has the name, or ctx ends.
func (h *holds) reserve(ctx context.Context, name string) error {
	for {
		other := h.tryReserve(name)
		if other == nil {
			return nil
		}
		select {
		case <-other.ended:
		case <-ctx.Done():
			return &dibs.BusyError{Name: dibsName(name), Cause: context.Cause(ctx)}
		}
	}
}

// tryReserve reserves the name, or returns the hold that another goroutine has.
func (h *holds) tryReserve(name string) (other *hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if other := h.byName[name]; other != nil {
		return other
	}
	if h.byName == nil {
		h.byName = make(map[string]*hold)
	}
	h.byName[name] = &hold{ended: make(chan struct{})}
	return nil
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

// replace replaces the lease on a reserved name. It returns false if the name does not have
// the old one any more.
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

// remove ends the reservation of a name with this lease, or with nil. It returns false if
// another call has done that.
func (h *holds) remove(name string, lease *dibs.Lease) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	current := h.byName[name]
	if current == nil || current.lease != lease {
		return false
	}
	delete(h.byName, name)
	close(current.ended)
	return true
}
