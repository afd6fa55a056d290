package dibs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
	leasestate "github.com/dibslock/dibs/internal/lease"
	"github.com/dibslock/dibs/internal/load"
	"github.com/dibslock/dibs/internal/work"
)

// There are two ways to remove a lease or a request from the store: release and cancel.
// Both continue in the background if the outcome is unknown, until nothing can be left.

// releaseLease releases all names of a lease, concurrently, within the operation timeout.
func (c *Client) releaseLease(h *lease) error {
	s := h.Lock()
	parts := s.Names()
	cancelling := c.cancellations.begin(s.AcquireRequest(c.id, c.clock.Now()), h.ownToken)
	if late := s.Late(); late != nil {
		cancelling.unanswered(late.Until) // it would change the next lease with this token
	}
	h.Unlock()
	defer cancelling.end()
	defer h.cancelUnanswered()
	if len(parts) == 1 {
		return c.releaseName(h, parts[0], cancelling)
	}
	errs := make([]error, len(parts))
	var group sync.WaitGroup
	for i, p := range parts {
		group.Go(func() { errs[i] = c.releaseName(h, p, cancelling) })
	}
	group.Wait()
	if h.mayStillAcquire() && slices.Contains(errs, nil) {
		// A late acquire found some of the names free again, and ended the others.
		errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, ErrLost) })
	}
	return errors.Join(errs...)
}

// reservation returns how long a name must stay unavailable after a release now.
func (h *lease) reservation() time.Duration {
	defer h.Unlock()
	return h.Lock().Times.Reservation(h.c.clock.Now())
}

func (c *Client) releaseName(h *lease, p leasestate.Named, cancelling *cancellation) error {
	r := driver.ReleaseRequest{Name: p.Name, Token: h.state.Token, Fence: p.Fence, TokenEnds: !h.ownToken}
	ctx := work.Detach(c.work.Life(), h.values())
	released, unknown := false, false
	err := c.retry(ctx, c.releaseBy(h), func(a attempt) (err error) {
		r.Until = a.until
		r.Reserve = h.reservation()
		released, err = c.store.Release(ctx, r)
		if !hasOutcome(err) && !unsent(err) {
			unknown = true
			cancelling.unanswered(a.until)
		}
		return err
	})
	switch {
	case err == nil && (released || unknown):
		return nil // if it was not held, an earlier attempt has released it
	case err == nil:
		return lostError(leasestate.End{Reason: leasestate.Taken, Name: p.Name}, h.state.Token)
	case permanent(err):
		return err
	default:
		c.releaseLater(h, r)
		unknown = unknown || unsent(err) // the name is not free, and will be
		return &UnavailableError{Op: "unlock", Name: p.Name, Cause: rootCause(err), Refused: !unknown, Unknown: unknown}
	}
}

// releaseLost releases, in the background, what a lost lease may still hold in the store.
// Until MinHold has passed it reserves the name instead: the lease ends 2 % earlier than
// the TTL in the store.
func (c *Client) releaseLost(h *lease, request driver.AcquireRequest) {
	reserve := h.reservation() > 0 && (h.reason().IsExpiry() || len(request.With) > 0) // not a name that was taken
	if !reserve {
		c.cancel(h.values(), request, h.ownToken, time.Time{})
		h.cancelUnanswered()
		return
	}
	cancelling := c.cancellations.begin(request, h.ownToken)
	ran := c.work.Run(func(context.Context) {
		defer cancelling.end()
		_ = c.releaseLease(h) // the lease is lost, and its caller has that error
	})
	if !ran {
		cancelling.end()
	}
}

// releaseLater retries in the background for as long as the store may keep the lease.
func (c *Client) releaseLater(h *lease, r driver.ReleaseRequest) {
	s := h.Lock()
	life := clock.Add(s.Times.StoredFor(c.clock.Now()), max(time.Until(s.UnansweredUntil()), 0))
	h.Unlock()
	cancelling := c.cancellations.begin(driver.AcquireRequest{Name: r.Name, Token: r.Token}, h.ownToken)
	c.retryUntilDone(h.values(), cancelling, life, func(ctx context.Context, until time.Time) (bool, error) {
		r := r
		r.Until = until
		r.Reserve = h.reservation()
		_, err := c.store.Release(ctx, r)
		return err == nil, err
	})
}

// cancel cancels a request in the background. If unanswered is not zero, a try of the
// request had no answer and may arrive until then. So cancel continues until then, and for
// as long as the store may keep what that try has acquired. values is the context of the
// call that sent the request.
func (c *Client) cancel(values context.Context, request driver.AcquireRequest, own bool, unanswered time.Time) {
	cancelling := c.cancellations.begin(request, own)
	stored := max(request.TTL, driver.WaiterTTL+request.HandoffTTL())
	c.retryUntilDone(values, cancelling, clock.Add(stored, max(time.Until(unanswered), 0)), func(ctx context.Context, until time.Time) (bool, error) {
		last := !mayArrive(unanswered)
		request := request
		request.Until = until
		err := c.store.Cancel(ctx, request)
		return err == nil && last, err
	})
}

// retryUntilDone runs tries in the background until one is done or life has passed. A renewal
// that was sent before may arrive within an operation timeout and make life longer. A try
// that hangs does not delay the next one, which may use another connection. The pauses between
// them grow with the time that has passed, and the budget limits how many are on their way. The
// store's client sees the values of a context, such as a trace.
func (c *Client) retryUntilDone(values context.Context, cancelling *cancellation, life time.Duration, try func(ctx context.Context, until time.Time) (done bool, err error)) {
	const atOnce, soon, longest = 4, 400 * time.Millisecond, 5 * time.Second
	begin := c.clock.Now()
	ran := c.work.Run(func(ctx context.Context) {
		defer cancelling.end()
		ctx, done := context.WithTimeout(work.Detach(ctx, values), clock.Add(life, max(cancelGrace, c.defaults.timeout)))
		defer done()
		var tries sync.WaitGroup
		defer tries.Wait()
		slots := make(chan struct{}, atOnce)
		for every := 50 * time.Millisecond; ctx.Err() == nil; every = min(every*3/2, max(soon, min((c.clock.Now()-begin)/50, longest))) {
			select {
			case slots <- struct{}{}:
				tries.Go(func() {
					defer func() { <-slots }()
					if c.tryOnce(ctx, cancelling, try) {
						done()
					}
				})
			default:
			}
			pause(ctx, max(every, min(c.rtt.Twice(), soon)))
		}
	})
	if !ran {
		cancelling.end()
	}
}

// tryOnce makes one try when the budget has room for it. It reports whether no other one is needed.
func (c *Client) tryOnce(ctx context.Context, cancelling *cancellation, try func(ctx context.Context, until time.Time) (done bool, err error)) bool {
	on, err := c.gate.Wait(ctx, load.Cleanup)
	if err != nil {
		return true
	}
	until := time.Now().Add(c.defaults.timeout)
	done, err := try(ctx, until)
	c.gate.End(&on, outcomeOf(ctx, err, until))
	if err != nil && !refused(err) && !unsent(err) {
		cancelling.unanswered(until)
	}
	return done || permanent(err)
}
