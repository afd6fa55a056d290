package dibs

import (
	"cmp"
	"context"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/acquire"
	leasestate "github.com/dibslock/dibs/internal/lease"
	"github.com/dibslock/dibs/internal/work"
)

// ReserveFences reserves n consecutive fences for the lease and returns the first. They are larger
// than all fences granted or reserved on the name before, and smaller than all later fences. So the
// holder can give each part of its work its own fence. The lease itself does not change, and
// neither does its Fence.
//
// n is from 1 to 1,000,000. The lease must hold a single name exclusively, and must not be
// attached. If the lease does not meet these conditions, or the store cannot reserve fences,
// ReserveFences returns ErrInvalid. It returns ErrLost or ErrReleased if the lease ended. It
// returns ErrUnavailable if the store does not answer before ctx or the operation timeout ends:
// then no fence is reserved.
//
// A fence is roughly the time in µs. If fences are reserved faster than one per µs, they run ahead
// of the store's clock. If the server then fails over to a replica without these fences, it can
// issue them again, until the clock catches up.
func (handle *Lease) ReserveFences(ctx context.Context, n int) (first uint64, err error) {
	if handle.isZero() {
		return 0, errNoLease
	}
	l := handle.lease()
	if n < 1 || n > driver.MaxFences {
		return 0, invalid("reserve %d fences of %q: not within 1 to %d", n, l.state.Name, driver.MaxFences)
	}
	request, err := fenceRequest(l, n)
	if err != nil {
		return 0, err
	}
	if !l.c.begin() {
		return 0, ErrClosed
	}
	defer l.c.work.Done()
	var reply driver.FenceReply
	ctx = work.Detach(ctx, l.values())
	err = l.c.retry(ctx, time.Now().Add(l.timeout()), func(a acquire.Attempt) (err error) {
		reply, err = l.c.store.ReserveFences(ctx, a.Until, request)
		return err
	})
	if err != nil {
		return 0, err
	}
	if !reply.Held {
		return 0, endUnfenced(l)
	}
	defer l.UnlockState()
	l.LockState().RecordFences(reply.Last)
	return reply.Last - uint64(n) + 1, nil
}

// endUnfenced ends a lease missing from the store, and returns why. A lease whose weight changed
// meanwhile does not end.
func endUnfenced(l *lease) error {
	var shared error
	err := l.update(func(s *leasestate.State) {
		if shared = checkExclusive(s); shared == nil {
			s.Lose(leasestate.End{Reason: leasestate.Missing})
		}
	})
	return cmp.Or(shared, err)
}

// fenceRequest returns the request for n fences. It includes the last known fence, which a failover
// may have lost.
func fenceRequest(l *lease, n int) (driver.FenceRequest, error) {
	if err := l.first.Err(); err != nil {
		return driver.FenceRequest{}, err
	}
	s := l.LockState()
	defer l.UnlockState()
	if err := checkExclusive(s); err != nil {
		return driver.FenceRequest{}, err
	}
	return driver.FenceRequest{Name: s.Name, Token: s.Token, Count: n, Least: s.LastFence() + uint64(n)}, nil
}

// checkExclusive returns ErrInvalid unless the lease certainly holds a single name exclusively.
func checkExclusive(s *leasestate.State) error {
	switch w := s.Weight(); {
	case w.Unsure:
		return invalid("reserve fences of %q: the lease may be a shared one, because it is attached or its weight is being changed", s.Name)
	case s.More() > 0 || w.Weight != w.Limit:
		return invalid("reserve fences of %q: the lease does not hold one name exclusively", s.Name)
	}
	return nil
}
