package dibs

import (
	"errors"
	"fmt"
	"time"

	leasestate "github.com/dibslock/dibs/internal/lease"
	"github.com/dibslock/dibs/internal/work"
)

// Unlock releases the lock. The store grants it to the first waiter in the same step.
// Unlock takes no context: it has its own time limit, the operation timeout, so a
// cancelled request cannot leak a lock.
//
// Unlock returns ErrLost if the lease was lost before, and nil if it was already
// unlocked. If the store does not answer in time, it returns an ErrUnavailable with an
// unknown outcome. It then retries in the background, for as long as the store may keep the
// lease. The last Unlock of a reentrant lease releases it.
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
		counted = c.work.Begin() // so that Close waits for it
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

// Detach ends this lease without releasing the lock, which another owner has attached to:
// see Client.Attach. The contexts of the lease end, renewal stops, and Err returns
// ErrReleased. Neither Unlock nor Client.Close releases the lock afterwards. If nobody has
// attached, the lock stays until its TTL has passed. After a wait in the queue that is the
// hand-off TTL, at most 5 s, until the first renewal: call Extend before Detach.
//
// If a request for the lease had no answer, it may still arrive at the store, and acquire the
// name again after the new owner has unlocked. Detach waits until that is impossible, at most
// one operation timeout and 100 ms. The new owner must not unlock before Detach has returned.
//
// Detach returns ErrLost if the lease was lost before, and ErrReentrant if a nested call uses
// it, and nil if the lease was already unlocked or detached.
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

// releasedByDo returns the error of a verb that would end the lease of a Do.
func (handle *Lease) releasedByDo(verb string) error {
	return invalid("%s: the lease on %q is that of Do, which releases it when its function returns", verb, handle.Name())
}

// dropReservation makes the next release end the lease without a reservation, unless the lease has
// ended, or a nested call uses it.
func (l *lease) dropReservation() {
	s := l.LockState()
	defer l.UnlockState()
	if l.handles == 1 && s.Reason() == leasestate.Held {
		s.Times.DropMinHold()
	}
}
