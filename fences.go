package dibs

import (
	"context"
	"time"

	"github.com/dibslock/dibs/driver"
)

// ReserveFences returns the first of n further fences of the lease, which follow each other. They
// are larger than each fence granted on the name before, also by this method, and smaller than each
// one granted later. So the holder can give each part of its work a fence of its own. The lease
// itself does not change, and neither does its Fence.
//
// The lease must hold one name exclusively, and must not be an attached one. n is from 1 to
// 1,000,000. Otherwise ReserveFences returns ErrInvalid, and so it does for a store that cannot
// reserve fences. It returns ErrLost if the lease is lost, and ErrUnavailable if the store does not
// answer: then no fence is reserved. The limit is ctx or the operation timeout.
//
// A fence is about the time in µs. Fences that are reserved faster than one in a µs run ahead of the
// clock of the store. Until the clock has caught up, a failover that loses them can repeat them.
func (l *Lease) ReserveFences(ctx context.Context, n int) (first uint64, err error) {
	if l.isZero() {
		return 0, errNoLease
	}
	h := l.h
	if n < 1 || n > driver.MaxFences {
		return 0, invalid("reserve %d fences of %q: not within 1 to %d", n, h.name, driver.MaxFences)
	}
	request, err := h.fenceRequest(n)
	if err != nil {
		return 0, err
	}
	if !h.c.begin() {
		return 0, ErrClosed
	}
	defer h.c.work.done()
	var reply driver.FenceReply
	ctx = detach(ctx, h.values())
	err = h.c.retry(ctx, time.Now().Add(h.timeout()), func(a attempt) (err error) {
		reply, err = h.c.store.ReserveFences(ctx, a.until, request)
		return err
	})
	switch {
	case err != nil:
		return 0, err
	case !reply.Held:
		if err := h.checkExclusive(); err != nil { // it was changed meanwhile
			return 0, err
		}
		return 0, h.lose(h.name, ReasonTaken, nil)
	}
	h.recordFences(reply.Last)
	return reply.Last - uint64(n) + 1, nil
}

// fenceRequest returns the request for n fences. It has the last fence that is known: a failover
// may have lost that.
func (h *lease) fenceRequest(n int) (driver.FenceRequest, error) {
	if err := h.first.Err(); err != nil {
		return driver.FenceRequest{}, err
	}
	if err := h.checkExclusive(); err != nil {
		return driver.FenceRequest{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	last := max(h.fence, h.extra().lastFence)
	return driver.FenceRequest{Name: h.name, Token: h.token, Count: n, Least: last + uint64(n)}, nil
}

// checkExclusive returns ErrInvalid unless the lease certainly holds one name exclusively.
func (h *lease) checkExclusive() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.weightUnsure:
		return invalid("reserve fences of %q: the lease may be a shared one, because it is attached or its weight is being changed", h.name)
	case len(h.extra().moreNames) > 0 || h.weight != h.limit:
		return invalid("reserve fences of %q: the lease does not hold one name exclusively", h.name)
	}
	return nil
}

func (h *lease) recordFences(last uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changeExtra().lastFence = max(h.extra().lastFence, last)
}
