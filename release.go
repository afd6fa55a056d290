package dibs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

// How a claim is undone. Both ways go on in the background where the outcome is
// unknown, until nothing can be left of it.

// giveBack releases a lease within the operation timeout: all its names at once.
func (c *Client) releaseLease(h *leaseState) error {
	c.mu.Lock()
	first, more := fencedName{h.name, h.fence}, h.moreNames
	undo := c.cancellations.begin(h.acquireRequest(), h.ownToken)
	undo.unanswered(h.lateResize) // a change that arrives late would change the next lease
	c.mu.Unlock()
	defer undo.end()
	defer h.cancelUnanswered()
	if len(more) == 0 {
		return c.releaseName(h, first, undo)
	}
	parts := append([]fencedName{first}, more...)
	errs := make([]error, len(parts))
	var group sync.WaitGroup
	for i, p := range parts {
		group.Go(func() { errs[i] = c.releaseName(h, p, undo) })
	}
	group.Wait()
	if h.mayStillAcquire() && slices.Contains(errs, nil) {
		// An acquire that arrived late, when some of the names were free again, has
		// ended the rest.
		errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, ErrLost) })
	}
	return errors.Join(errs...)
}

func (c *Client) releaseName(h *leaseState, p fencedName, undo *cancellation) error {
	r := driver.ReleaseRequest{Name: p.name, Token: h.token, Fence: p.fence}
	end := c.releaseBy(h.timeout)
	unknown := false
	ctx := detach(c.life, h.parent)
	for try := 0; ; try++ {
		sent := c.now()
		r.Until = c.rtt.attemptDeadline(end)
		r.Reserve = max(h.minHoldUntil-c.now(), 0)
		freed, err := c.store.Release(ctx, r)
		c.observeHealth(c.life, err)
		if err == nil || !time.Now().Before(r.Until) {
			c.rtt.observe(c.now() - sent)
		}
		if err == nil && (freed || unknown) {
			return nil // if it was not held any more, an earlier try has freed it
		}
		if err == nil {
			return &LostError{Name: p.name, Token: h.token, Reason: ReasonTaken}
		}
		if permanent(err) {
			return err
		}
		if !refused(err) {
			unknown = true
			undo.unanswered(r.Until)
		}
		if refused(err) || !time.Now().Before(end) || !pause(c.life, backoff(try)) {
			c.releaseLater(h, r)
			return &UnavailableError{Op: "unlock", Name: p.name, Cause: rootCause(err), Refused: !unknown, Unknown: unknown}
		}
	}
}

// leave releases, in the background, what a lost lease may still hold. Until MinHold
// has passed that is kept taken: the lease was over 2 % before the store's TTL is.
func (c *Client) releaseLost(h *leaseState, claim driver.AcquireRequest) {
	keep := h.minHoldUntil > c.now() && (h.expiredLocally || len(claim.With) > 0) // not a name that was taken
	if !keep {
		c.cancel(claim, h.ownToken, time.Time{})
		h.cancelUnanswered()
		return
	}
	undo := c.cancellations.begin(claim, h.ownToken)
	ran := c.background(func(context.Context) {
		defer undo.end()
		_ = c.releaseLease(h) // it is lost, and that was returned
	})
	if !ran {
		undo.end()
	}
}

// releaseLater goes on in the background until the TTL has passed.
func (c *Client) releaseLater(h *leaseState, r driver.ReleaseRequest) {
	undo := c.cancellations.begin(driver.AcquireRequest{Name: r.Name, Token: r.Token}, h.ownToken)
	c.retryUntilDone(undo, max(h.ttl, h.minHoldUntil-c.now()), func(ctx context.Context, until time.Time) (bool, error) {
		r := r
		r.Until = until
		r.Reserve = max(h.minHoldUntil-c.now(), 0)
		_, err := c.store.Release(ctx, r)
		return err == nil, err
	})
}

// abandon undoes a claim in the background. If a try of it was not answered, that may
// still arrive until unanswered, unless that is zero: abandon goes on until then.
func (c *Client) cancel(claim driver.AcquireRequest, own bool, unanswered time.Time) {
	undo := c.cancellations.begin(claim, own)
	c.retryUntilDone(undo, max(claim.TTL, driver.WaiterTTL, time.Until(unanswered)), func(ctx context.Context, until time.Time) (bool, error) {
		last := !mayArrive(unanswered)
		claim := claim
		claim.Until = until
		err := c.store.Cancel(ctx, claim)
		return err == nil && last, err
	})
}

// persist tries in the background until it is done, or has become needless. A try
// that hangs does not keep the next one, on another connection, from its time. Each has
// one operation timeout.
func (c *Client) retryUntilDone(undo *cancellation, life time.Duration, try func(ctx context.Context, until time.Time) (done bool, err error)) {
	const atOnce, longest = 4, 400 * time.Millisecond
	ran := c.background(func(ctx context.Context) {
		defer undo.end()
		ctx, done := context.WithTimeout(ctx, life+cancelGrace)
		defer done()
		var tries sync.WaitGroup
		defer tries.Wait()
		slots := make(chan struct{}, atOnce)
		for every := 50 * time.Millisecond; ctx.Err() == nil; every = min(every*3/2, longest) {
			select {
			case slots <- struct{}{}:
				tries.Go(func() {
					defer func() { <-slots }()
					until := time.Now().Add(c.defaults.timeout)
					finished, err := try(ctx, until)
					if err != nil && !refused(err) {
						undo.unanswered(until)
					}
					if finished || permanent(err) {
						done()
					}
				})
			default:
			}
			pause(ctx, max(every, min(c.rtt.twice(), longest)))
		}
	})
	if !ran {
		undo.end()
	}
}
