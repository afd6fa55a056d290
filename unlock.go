package dibs

import (
	"errors"
	"fmt"
	"time"

	leasestate "github.com/dibslock/dibs/internal/lease"
	"github.com/dibslock/dibs/internal/work"
)

// Unlock releases the lock. The store grants it to the first waiter in the same step. Unlock takes
// no context: it has its own time limit, the operation timeout, so a cancelled request cannot leak
// a lock.
//
// Unlock returns ErrLost if the lease was already lost, and nil if it was already unlocked. If the
// store does not answer in time, it returns an ErrUnavailable with an unknown outcome. It then
// retries in the background, until the lease's TTL has certainly passed. If several calls use the
// lease (with Reentrant), the last Unlock releases the lock.
func (handle *Lease) Unlock() error {
	if handle.isZero() {
		return errNoLease
	}
	if handle.work != nil {
		return handle.releasedByDo("unlock")
	}
	l := handle.l
	c := l.c
	now := c.clock.Check()
	again, last, lost, remains, counted := false, false, false, false, false
	err := l.update(func(s *leasestate.State) {
		if again = handle.done; again {
			return
		}
		handle.done = true
		l.handles--
		if last = l.handles == 0; !last {
			return
		}
		if s.Times.IsOver(now) {
			s.Expire()
		}
		if lost = s.Reason().IsEnd(); lost {
			remains = s.MayRemain()
			return
		}
		s.Release()
		counted = c.work.Begin() // so Close waits for it
	})
	switch {
	case again:
		return nil
	case !last:
		return err
	}
	defer l.dropToken().End()
	if lost {
		c.partlyLost.remove(l)
		if remains {
			l.releaseLost()
		} else {
			l.cancelUnanswered()
		}
		return err
	}
	err = l.release()
	if counted {
		c.work.Done()
	}
	l.hooks.released(l, err)
	return err
}

// Detach ends this lease without releasing the lock, to which another owner attached: see
// Client.Attach. The lease's contexts end, renewal stops, and Err returns ErrReleased. After
// Detach, neither Unlock nor Client.Close releases the lock. If nobody attached, the name stays
// locked until the lease's TTL passes. If the lock was granted after a wait, the first TTL is at
// most 5 s, until the first renewal. So the holder should call Extend before Detach.
//
// An earlier request whose reply was lost may arrive at the store late. If it arrives after the new
// owner's Unlock, it can acquire the name again. So Detach waits until no such request can have an
// effect, at most one operation timeout plus 100 ms. The new owner must not unlock before Detach
// returns.
//
// Detach returns ErrLost if the lease was already lost, and ErrReentrant if a nested call (with
// Reentrant) uses it. It returns nil if the lease was already unlocked or detached, and ErrClosed
// if the Client closes during the wait.
func (handle *Lease) Detach() error {
	if handle.isZero() {
		return errNoLease
	}
	if handle.work != nil {
		return handle.releasedByDo("detach")
	}
	l := handle.l
	for {
		if err := l.first.Err(); err != nil && !errors.Is(err, ErrReleased) {
			return err
		}
		again, nested, wait := false, false, time.Duration(0)
		_ = l.update(func(s *leasestate.State) {
			again, nested, wait = handle.done, l.handles > 1, max(time.Until(s.UnansweredUntil()), 0)
			if again || nested || wait > 0 {
				return
			}
			handle.done, l.handles = true, 0
			s.Release()
		})
		switch {
		case again:
			return nil
		case nested:
			return fmt.Errorf("%w: %q is used by a nested call", ErrReentrant, l.state.Name)
		case wait > 0 && !work.Pause(l.c.work.UntilEnd(), wait):
			return ErrClosed
		}
		if wait <= 0 {
			break
		}
	}
	defer l.dropToken().End()
	l.hooks.released(l, nil)
	return nil
}

// releasedByDo returns the error for a verb that would end a Do's lease.
func (handle *Lease) releasedByDo(verb string) error {
	return invalid("%s: the lease on %q is that of Do, which releases it when its function returns", verb, handle.Name())
}

// dropReservation makes the next release end the lease without a reservation, unless the lease
// ended or a nested call uses it.
func (l *lease) dropReservation() {
	s := l.LockState()
	defer l.UnlockState()
	if l.handles == 1 && s.Reason() == leasestate.Held {
		s.Times.DropMinHold()
	}
}
