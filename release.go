package dibs

import (
	"context"
	"errors"
	"sync"
	"time"
)

// How a claim is undone. Both ways go on in the background where the outcome is
// unknown, until nothing can be left of it.

// giveBack releases a lease within the operation timeout: all its names at once.
func (c *Client) giveBack(h *hold) error {
	c.mu.Lock()
	fence, parts := h.fence, h.more
	c.mu.Unlock()
	if len(parts) == 0 {
		return c.giveName(h, h.name, fence)
	}
	parts = append([]part{{h.name, fence}}, parts...)
	errs := make([]error, len(parts))
	var group sync.WaitGroup
	for i, p := range parts {
		group.Go(func() { errs[i] = c.giveName(h, p.name, p.fence) })
	}
	group.Wait()
	return errors.Join(errs...)
}

func (c *Client) giveName(h *hold, name string, fence uint64) error {
	r := Release{Name: name, Token: h.token, Fence: fence}
	end := time.Now().Add(h.timeout)
	unknown := false
	for try := 0; ; try++ {
		r.Until = share(end)
		r.Keep = max(h.least-c.now(), 0)
		freed, err := c.store.Release(c.life, r)
		c.note(c.life, err)
		if err == nil && (freed || unknown) {
			return nil // if it was not held any more, an earlier try has freed it
		}
		if err == nil {
			return &LostError{Name: name, Token: h.token, Why: Taken}
		}
		if final(err) {
			return err
		}
		unknown = unknown || !refused(err)
		if refused(err) || !time.Now().Before(end) || !pause(c.life, backoff(try)) {
			c.releaseLater(h, r)
			return &UnavailableError{Op: "unlock", Name: name, Cause: root(err), Refused: !unknown, Unknown: unknown}
		}
	}
}

// releaseLater goes on in the background until the TTL has passed.
func (c *Client) releaseLater(h *hold, r Release) {
	c.persist(max(h.ttl, h.least-c.now()), func(ctx context.Context) bool {
		r := r
		r.Until = time.Now().Add(h.timeout)
		r.Keep = max(h.least-c.now(), 0)
		_, err := c.store.Release(ctx, r)
		return err == nil || final(err)
	})
}

// abandon undoes a claim in the background. If its last question was not
// answered, that may still arrive: abandon goes on until it would be too late.
func (c *Client) abandon(claim Claim, unanswered bool) {
	c.persist(max(claim.TTL, ClaimTTL, time.Until(claim.Until)), func(ctx context.Context) bool {
		late := time.Since(claim.Until) > slack
		claim := claim
		claim.Until = time.Now().Add(c.defaults.timeout)
		err := c.store.Abandon(ctx, claim)
		return final(err) || err == nil && (late || !unanswered)
	})
}

// persist tries in the background until it is done, or has become needless. A try
// that hangs does not keep the next one, on another connection, from its time.
func (c *Client) persist(life time.Duration, try func(ctx context.Context) (done bool)) {
	const atOnce = 4
	c.background(func(ctx context.Context) {
		ctx, done := context.WithTimeout(ctx, life+persistFor)
		defer done()
		slots := make(chan struct{}, atOnce)
		for every := 50 * time.Millisecond; ctx.Err() == nil; every = min(every*3/2, 400*time.Millisecond) {
			select {
			case slots <- struct{}{}:
				c.background(func(context.Context) {
					defer func() { <-slots }()
					if try(ctx) {
						done()
					}
				})
			default:
			}
			pause(ctx, every)
		}
	})
}
