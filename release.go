package dibs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/acquire"
	"github.com/dibslock/dibs/internal/answer"
	"github.com/dibslock/dibs/internal/clock"
	leasestate "github.com/dibslock/dibs/internal/lease"
)

// release releases all names in the lease, concurrently, within the operation timeout.
func (l *lease) release() error {
	names := l.LockState().Names()
	cancelling := l.cancellingLocked()
	l.UnlockState()
	defer cancelling.End()
	defer l.cancelUnanswered()
	if len(names) == 1 {
		return l.releaseName(names[0], cancelling)
	}
	errs := make([]error, len(names))
	var group sync.WaitGroup
	for i, n := range names {
		group.Go(func() { errs[i] = l.releaseName(n, cancelling) })
	}
	group.Wait()
	if mayArrive(unanswered(l)) && slices.Contains(errs, nil) {
		// A late acquire found some names free again, and ended the others.
		errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, ErrLost) })
	}
	return errors.Join(errs...)
}

// cancellingLocked lists the lease's end, if its user chose the token. The caller ends the result.
func (l *lease) cancellingLocked() *acquire.Cancellation {
	if !l.ownToken {
		return nil
	}
	cancelling := l.c.acquirer.Cancelling(l.namesLocked(), l.state.Token)
	if late := l.state.LateResize(); late != nil {
		cancelling.Unanswered(late.Until) // it would change the next lease with this token
	}
	return cancelling
}

func (l *lease) releaseName(n leasestate.Named, cancelling *acquire.Cancellation) error {
	c := l.c
	r := acquire.Release{
		Request: driver.ReleaseRequest{Name: n.Name, Token: l.state.Token, Fence: n.Fence, LastUse: !l.ownToken},
		Values:  l.values(), ReserveUntil: l.minHoldUntil(),
	}
	o := c.acquirer.Release(r, c.releaseBy(l), cancelling)
	switch {
	case o.Err == nil && (o.Released || o.Unknown):
		return nil // if it was not held, an earlier attempt released it
	case o.Err == nil:
		return lostError(leasestate.End{Reason: leasestate.Missing, Name: n.Name}, l.state.Token)
	case answer.IsPermanent(o.Err):
		return public(o.Err)
	}
	s := l.LockState()
	life := clock.Add(s.Times.StoredFor(c.clock.Now()), max(time.Until(s.UnansweredUntil()), 0))
	l.UnlockState()
	c.acquirer.ReleaseLater(r, life)
	unknown := o.Unknown || answer.IsUnsent(o.Err) // the name is not free yet, but will be
	failed := &UnavailableError{Op: opUnlock, Name: n.Name, Cause: public(answer.Cause(o.Err)), Unknown: unknown}
	errors.As(o.Err, &failed.source)
	return failed
}

// minHoldUntil returns when MinHold ends, or zero.
func (l *lease) minHoldUntil() time.Duration {
	defer l.UnlockState()
	return l.LockState().Times.MinHoldUntil()
}

// releaseLost releases, in the background, everything a lost lease may still hold in the store.
// Before MinHold ends, it reserves the name instead: the lease ends 2 % earlier than the TTL in the
// store.
func (l *lease) releaseLost() {
	s := l.LockState()
	reserve := s.Times.MinHoldUntil() > l.c.clock.Now() && (s.Reason().IsExpiry() || s.More() > 0) // not a name taken by others
	if !reserve {
		l.UnlockState()
		l.cancelHeld()
		return
	}
	cancelling := l.cancellingLocked()
	l.UnlockState()
	ran := l.c.work.Run(func(context.Context) {
		defer cancelling.End()
		_ = l.release() // the lease is lost: its caller already has the error
	})
	if !ran {
		cancelling.End()
	}
}

// cancel ends a lease that no caller received, and releases its names in the background.
func (l *lease) cancel() {
	_ = l.update((*leasestate.State).Release)
	l.c.partlyLost.remove(l)
	l.cancelHeld()
}

// cancelHeld cancels, in the background, everything an ended lease may still hold in the store.
func (l *lease) cancelHeld() {
	request := l.LockState().AcquireRequest(l.c.id, l.c.clock.Now())
	l.UnlockState()
	l.c.acquirer.Cancel(l.values(), request, l.ownToken, time.Time{})
	l.cancelUnanswered()
}

// cancelUnanswered cancels, in the background, an ended lease's acquires without an answer.
func (l *lease) cancelUnanswered() {
	for u := unanswered(l); u != nil; u = u.Next {
		if clock.MayArrive(u.Until) {
			l.c.acquirer.Cancel(l.values(), u.Request, l.ownToken, u.Until)
		}
	}
}

// mayArrive reports whether any of these acquires can still take effect.
func mayArrive(u *leasestate.Unanswered) bool {
	for ; u != nil; u = u.Next {
		if clock.MayArrive(u.Until) {
			return true
		}
	}
	return false
}

// unanswered returns a lease's acquires without an answer.
func unanswered(l *lease) *leasestate.Unanswered {
	defer l.UnlockState()
	return l.LockState().Unanswered()
}
