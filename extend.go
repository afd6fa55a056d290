package dibs

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/internal/acquire"
	"github.com/dibslock/dibs/internal/clock"
	leasestate "github.com/dibslock/dibs/internal/lease"
)

// Extend sets the lease's remaining time to at least d, and uses d as the TTL for later renewals.
// So d should be the TTL that the lease needs from now on. d is from 10 ms to 24 h; any other value
// is ErrInvalid. Extend never shortens a lease and never restores a lost lease. MinHold (the
// shortest time the name stays unavailable) still applies, whatever d is.
//
// Extend returns ErrLost or ErrReleased if the lease ended. It returns ErrUnavailable if the
// outcome is unknown when ctx or the operation timeout ends: the lease then lasts as long as before
// or longer.
func (handle *Lease) Extend(ctx context.Context, d time.Duration) error {
	if handle.isZero() {
		return errNoLease
	}
	l := handle.lease()
	if err := checkTTL("Extend by", l.state.Name, d); err != nil {
		return err
	}
	if err := l.first.Err(); err != nil {
		return err
	}
	sent, ttl, lost, err := l.requestExtension(ctx, d)
	switch {
	case err == nil:
		return l.recordExtension(sent, ttl, d)
	case errors.Is(err, ErrLost):
		return l.lose(leasestate.MissingEnd(lost, err))
	default:
		return err
	}
}

// requestExtension extends the lease in the store by d or more. It returns the confirmed ttl, which
// counts from sent or later. After ErrLost it returns the lost name.
func (l *lease) requestExtension(ctx context.Context, d time.Duration) (sent, ttl time.Duration, lost string, err error) {
	err = l.c.retry(ctx, time.Now().Add(l.timeout()), func(a acquire.Attempt) (err error) {
		s := l.LockState()
		sent, ttl = a.Sent, s.Times.ExtensionTTL(a.Sent, d)
		s.Times.MayExtend(clock.Add(l.c.clock.Now(), time.Until(a.Until)), ttl)
		requests := s.AppendExtends(nil, l.c.id, ttl)
		l.UnlockState()
		errs := l.c.store.Extend(ctx, a.Until, requests)
		defer l.UnlockState()
		lost, err = l.LockState().Result(errs)
		return err
	})
	return sent, ttl, lost, err
}

// recordExtension records that the store extended the lease by ttl, from sent or later. Later
// renewals extend it by next.
func (l *lease) recordExtension(sent, ttl, next time.Duration) error {
	if !l.c.begin() {
		return cmp.Or(l.first.Err(), ErrClosed)
	}
	defer l.c.work.Done()
	now := l.c.clock.Now()
	return l.update(func(s *leasestate.State) { s.Times.Confirm(now, sent, ttl, next) })
}
