package dibs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/acquire"
	"github.com/dibslock/dibs/internal/answer"
	leasestate "github.com/dibslock/dibs/internal/lease"
	"github.com/dibslock/dibs/internal/work"
)

// Downgrade makes an RWMutex's writer a reader; no other writer can hold the lock in between. The
// store also grants the lock to the readers at the head of the queue. The lease then has a new and
// larger fence, which Lease.Fence returns from then on. If the lease is already a reader's, it
// stays a reader's.
//
// Downgrade returns ErrInvalid if the lease is attached or not from an RWMutex. It returns ErrLost
// or ErrReleased if the lease ended, and ErrReentrant if a nested call (with Reentrant) uses it. It
// returns ErrUnavailable if the store does not answer before ctx or the operation timeout ends; the
// caller can then try again. If the outcome is unknown, the lease is held for reading, but the
// store may still make other readers wait. Concurrent Downgrade and TryUpgrade calls on a lease run
// one after another.
func (handle *Lease) Downgrade(ctx context.Context) error {
	busy, err := handle.resize(ctx, 1)
	if err == nil && busy != nil {
		return handle.lease().lose(leasestate.End{Reason: leasestate.Missing})
	}
	return err
}

// TryUpgrade makes an RWMutex's reader the writer if it is the only reader. Otherwise it returns
// ErrBusy at once: two readers waiting for each other would wait forever. The upgrade does not wait
// behind the queue, because nobody can have written since this reader began. The lease then has a
// new and larger fence. If the lease is already a writer's, it stays a writer's.
//
// After any error except ErrLost and ErrReleased, the lease is still held for reading. After
// ErrUnavailable the store may make other readers wait until Unlock, Downgrade or another
// TryUpgrade. Other errors are those of Downgrade.
func (handle *Lease) TryUpgrade(ctx context.Context) error {
	busy, err := handle.resize(ctx, driver.Unlimited)
	if err == nil && busy != nil {
		return busy
	}
	return err
}

// resize changes the weight. A non-nil busy means that other holders prevent it.
func (handle *Lease) resize(ctx context.Context, weight int) (busy *BusyError, err error) {
	if handle.isZero() {
		return nil, errNoLease
	}
	l := handle.lease()
	r := resize{l: l, weight: weight, end: time.Now().Add(l.timeout())}
	return r.run(ctx)
}

// A resize is a change to a lease's weight, in progress.
type resize struct {
	l      *lease
	weight int       // out of driver.Unlimited
	end    time.Time // the operation must end by then
}

// run changes the weight. A non-nil busy means that other holders prevent it. Changes to a lease
// run one after another; otherwise the reply that arrives last would count, whatever the store did
// last.
func (r *resize) run(ctx context.Context) (busy *BusyError, err error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	endTurn, err := r.awaitTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer endTurn()
	if err := r.awaitLate(ctx); err != nil {
		return nil, err
	}
	if err := r.l.first.Err(); err != nil {
		return nil, err
	}
	return r.runAlone(ctx)
}

// runAlone is run while no other change to the lease is in progress.
func (r *resize) runAlone(ctx context.Context) (busy *BusyError, err error) {
	begun, err := r.begin()
	if err != nil {
		return nil, err
	}
	reply, err := r.request(ctx)
	if !reply.Held {
		r.l.LockState().EndResize(begun, err == nil)
		r.l.UnlockState()
	}
	if err == nil && !reply.Held {
		busy = &BusyError{Name: r.l.state.Name, Holder: Token(reply.Holder), NeverExpires: reply.NeverExpires(), Remaining: max(reply.Remaining, 0)}
	}
	return busy, err
}

// awaitTurn waits until no other resize of the lease is in progress. The caller should call done
// afterwards.
func (r *resize) awaitTurn(ctx context.Context) (done func(), err error) {
	turn := r.turn()
	done = func() { <-turn }
	select {
	case turn <- struct{}{}: // even if ctx ended: the request reports it
		return done, nil
	default:
	}
	limit := time.NewTimer(time.Until(r.end))
	defer limit.Stop()
	select {
	case turn <- struct{}{}:
		return done, nil
	case <-limit.C:
		err = context.DeadlineExceeded
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, r.unavailable(fmt.Errorf("another change of the lease is in progress: %w", err))
}

// turn returns a channel that contains an element while a resize is in progress.
func (r *resize) turn() chan struct{} {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	x := r.l.extraLocked()
	if x.resizeTurn == nil {
		x.resizeTurn = make(chan struct{}, 1)
	}
	return x.resizeTurn
}

// begin begins the change, unless checkLocked rejects it.
func (r *resize) begin() (leasestate.Resize, error) {
	s := r.l.LockState()
	defer r.l.UnlockState()
	if err := r.checkLocked(); err != nil {
		return leasestate.Resize{}, err
	}
	return s.BeginResize(r.weight, driver.Unlimited), nil
}

// request asks the store for another weight, and records the answer. The TTL is a renewal's.
func (r *resize) request(ctx context.Context) (driver.AcquireReply, error) {
	l := r.l
	var sent, ttl time.Duration
	var reply driver.AcquireReply
	err := l.c.retry(ctx, r.end, func(a acquire.Attempt) (err error) {
		s := l.LockState()
		sent, ttl = a.Sent, s.Times.RenewalTTL(a.Sent)
		request := driver.AcquireRequest{
			Name: s.Name, Token: s.Token, Client: l.c.id, TTL: ttl, Weight: r.weight, Limit: driver.Unlimited, Until: a.Until,
		}
		before := s.AddLate(r.weight, a.Until)
		l.UnlockState()
		reply, err = l.c.store.Resize(ctx, request)
		if answer.IsKnown(err) || answer.IsUnsent(err) {
			r.setLate(before)
		}
		return err
	})
	if err != nil || !reply.Held {
		return reply, err
	}
	s := l.LockState()
	s.Resized(r.weight, driver.Unlimited, reply.Fence)
	next := s.Times.TTL()
	l.UnlockState()
	return reply, l.recordExtension(sent, ttl, next)
}

func (r *resize) setLate(late *leasestate.LateResize) {
	defer r.l.UnlockState()
	r.l.LockState().SetLateResize(late)
}

// awaitLate waits until no earlier change to another weight, with an unknown outcome, can arrive
// after this change.
func (r *resize) awaitLate(ctx context.Context) error {
	late := r.l.LockState().LateResize()
	r.l.UnlockState()
	if late == nil || late.Weight == r.weight {
		return nil
	}
	wait := time.Until(late.Until)
	left := time.Until(r.end)
	switch {
	case wait > 0 && !work.Pause(ctx, min(wait, left)):
		return r.unavailable(context.Cause(ctx))
	case wait > left:
		return r.unavailable(errLateResize)
	}
	r.setLate(nil)
	return nil
}

var errLateResize = errors.New("an earlier change without an answer may still arrive: retry later")

func (r *resize) unavailable(cause error) error {
	return &UnavailableError{Op: "resize", Name: r.l.state.Name, Cause: cause}
}

// check rejects other primitives' leases, and leases used by a nested call.
func (r *resize) check() error {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	return r.checkLocked()
}

// checkLocked is check for a locked lease.
func (r *resize) checkLocked() error {
	s := &r.l.state
	switch {
	case s.IsAttached():
		return invalid("resize: the lease on %q is attached, so its primitive is not known", s.Name)
	case s.Weight().Limit != driver.Unlimited || s.More() > 0:
		return invalid("resize: the lease on %q is not that of a reader or a writer of an RWMutex", s.Name)
	case r.l.handles > 1:
		return errors.Join(ErrReentrant, invalid("lease on %q is shared by a nested call", s.Name))
	}
	return nil
}
