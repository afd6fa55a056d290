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

// endUnfenced ends a lease that the store no longer has, and returns why. One whose weight was
// changed meanwhile does not end.
func endUnfenced(l *lease) error {
	var shared error
	err := l.update(func(s *leasestate.State) {
		if shared = checkExclusive(s); shared == nil {
			s.Lose(leasestate.End{Reason: leasestate.Missing})
		}
	})
	return cmp.Or(shared, err)
}

// fenceRequest returns the request for n fences. It has the last fence that is known: a failover
// may have lost that.
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

// checkExclusive returns ErrInvalid unless a lease certainly holds one name exclusively.
func checkExclusive(s *leasestate.State) error {
	switch w := s.Weight(); {
	case w.Unsure:
		return invalid("reserve fences of %q: the lease may be a shared one, because it is attached or its weight is being changed", s.Name)
	case s.More() > 0 || w.Weight != w.Limit:
		return invalid("reserve fences of %q: the lease does not hold one name exclusively", s.Name)
	}
	return nil
}
