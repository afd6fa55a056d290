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

// A resize is a change of the weight of one lease, on its way to the store.
type resize struct {
	c   *Client
	l   *lease
	to  lockSpec
	end time.Time // the operation must end by then
}

// run changes the weight. A non-nil busy means that other holders prevent it. Changes of one lease are
// made one after another. Otherwise the reply that arrives last would count, whatever the store did
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

// runAlone is run when no other change of the lease is in progress.
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
		busy = &BusyError{Name: r.to.name, Holder: Token(reply.Holder), NeverExpires: reply.NeverExpires(), Remaining: max(reply.Remaining, 0)}
	}
	return busy, err
}

// awaitTurn waits until no other resize of the lease is in progress. The caller calls done
// afterwards.
func (r *resize) awaitTurn(ctx context.Context) (done func(), err error) {
	turn := r.turn()
	done = func() { <-turn }
	select {
	case turn <- struct{}{}: // also if ctx has ended: the request says so
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

// turn returns a channel that has an element while a resize of the lease is in progress.
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
	return s.BeginResize(r.to.weight, r.to.limit), nil
}

// request asks the store for another weight of the lease, and records the answer. The TTL is that
// of a renewal.
func (r *resize) request(ctx context.Context) (driver.AcquireReply, error) {
	l := r.l
	var sent, ttl time.Duration
	var reply driver.AcquireReply
	err := l.c.retry(ctx, r.end, func(a acquire.Attempt) (err error) {
		s := l.LockState()
		sent, ttl = a.Sent, s.Times.RenewalTTL(a.Sent)
		request := driver.AcquireRequest{
			Name: s.Name, Token: s.Token, Client: l.c.id, TTL: ttl, Weight: r.to.weight, Limit: r.to.limit, Until: a.Until,
		}
		before := s.AddLate(r.to.weight, a.Until)
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
	s.Resized(r.to.weight, r.to.limit, reply.Fence)
	next := s.Times.TTL()
	l.UnlockState()
	return reply, l.recordExtension(sent, ttl, next)
}

func (r *resize) setLate(late *leasestate.LateResize) {
	defer r.l.UnlockState()
	r.l.LockState().SetLateResize(late)
}

// awaitLate waits until no earlier change to another weight, with an unknown
// outcome, can arrive after this one.
func (r *resize) awaitLate(ctx context.Context) error {
	late := r.l.LockState().LateResize()
	r.l.UnlockState()
	if late == nil || late.Weight == r.to.weight {
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

// check rejects leases of another name or client, and those that a nested call uses.
func (r *resize) check() error {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	return r.checkLocked()
}

// checkLocked is check for a locked lease.
func (r *resize) checkLocked() error {
	s := &r.l.state
	switch {
	case r.l.c != r.c || s.Name != r.to.name || s.More() > 0:
		return invalid("lease on %q is not one of RWMutex %q of this Client", s.Name, r.to.name)
	case r.l.handles > 1:
		return errors.Join(ErrReentrant, invalid("lease on %q is shared by a nested call", s.Name))
	}
	return nil
}
