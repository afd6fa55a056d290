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
)

// releaseLease releases all names of a lease, concurrently, within the operation timeout.
func (c *Client) releaseLease(h *lease) error {
	h.mu.Lock()
	first, extra := fencedName{h.name, h.fence}, h.extra()
	cancelling := h.cancellingLocked()
	h.mu.Unlock()
	defer cancelling.End()
	defer h.cancelUnanswered()
	if len(extra.moreNames) == 0 {
		return c.releaseName(h, first, cancelling)
	}
	parts := append([]fencedName{first}, extra.moreNames...)
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

// cancellingLocked lists the end of the lease, if the caller has chosen its token. The caller holds the
// lock, and ends the result.
func (h *lease) cancellingLocked() *acquire.Cancellation {
	if !h.ownToken {
		return nil
	}
	cancelling := h.c.acquirer.Cancelling(h.acquireRequest("", 0).Names(), h.token, true)
	if late := h.extra().late; late != nil {
		cancelling.Unanswered(late.until) // it would change the next lease with this token
	}
	return cancelling
}

func (c *Client) releaseName(h *lease, p fencedName, cancelling *acquire.Cancellation) error {
	r := acquire.Release{
		Request: driver.ReleaseRequest{Name: p.name, Token: h.token, Fence: p.fence, TokenEnds: !h.ownToken},
		Values:  h.values(), ReserveUntil: h.readExtra().minHoldUntil,
	}
	o := c.acquirer.Release(r, c.releaseBy(h), cancelling)
	switch {
	case o.Err == nil && (o.Released || o.Unknown):
		return nil // if it was not held, an earlier attempt has released it
	case o.Err == nil:
		return &LostError{Name: p.name, Token: h.token, Reason: ReasonTaken}
	case answer.IsPermanent(o.Err):
		return o.Err
	}
	c.acquirer.ReleaseLater(r, h.keptFor())
	unknown := o.Unknown || answer.IsUnsent(o.Err) // the name is not free, and will be
	return &UnavailableError{Op: "unlock", Name: p.name, Cause: answer.Cause(o.Err), Refused: !unknown, Unknown: unknown}
}

// keptFor returns for how long the store may keep a lease that was not released.
func (h *lease) keptFor() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return clock.Add(h.storedFor(h.c.clock.Now()), max(h.unansweredFor(), 0))
}

// releaseLost releases, in the background, what a lost lease may still hold in the store.
// Until MinHold has passed it reserves the name instead: the lease ends 2 % earlier than
// the TTL in the store.
func (c *Client) releaseLost(h *lease, request driver.AcquireRequest) {
	reserve := h.readExtra().minHoldUntil > c.clock.Now() && (h.expiredLocally || len(request.With) > 0) // not a name that was taken
	if !reserve {
		c.acquirer.Cancel(h.values(), request, h.ownToken, time.Time{})
		h.cancelUnanswered()
		return
	}
	cancelling := c.acquirer.Cancelling(request.Names(), request.Token, h.ownToken)
	ran := c.work.Run(func(context.Context) {
		defer cancelling.End()
		_ = c.releaseLease(h) // the lease is lost, and its caller has that error
	})
	if !ran {
		cancelling.End()
	}
}

// cancel ends a lease that no caller has received, and releases its names in the
// background.
func (h *lease) cancel() {
	_ = h.update((*leaseState).release)
	h.c.partlyLost.remove(h)
	h.mu.Lock()
	request := h.acquireRequest(h.c.id, h.c.clock.Now())
	h.mu.Unlock()
	h.c.acquirer.Cancel(h.values(), request, h.ownToken, time.Time{})
	h.cancelUnanswered()
}

// An unansweredTry is an acquire without an answer. It may still arrive at the store and
// acquire the name again after its lease was released.
type unansweredTry struct {
	request driver.AcquireRequest
	until   time.Time // the request has no effect after this time
	next    *unansweredTry
}

// merge returns the tries of both lists.
func (u *unansweredTry) merge(o *unansweredTry) *unansweredTry {
	if u == nil {
		return o
	}
	u.next = u.next.merge(o)
	return u
}

// cancelUnanswered cancels, in the background, the unanswered tries of a lease that has
// ended.
func (h *lease) cancelUnanswered() {
	for u := h.readExtra().unanswered; u != nil; u = u.next {
		if clock.MayArrive(u.until) {
			h.c.acquirer.Cancel(h.values(), u.request, h.ownToken, u.until)
		}
	}
}

// unansweredFor returns for how long a request of the lease without an answer may still take
// effect.
func (s *leaseState) unansweredFor() time.Duration {
	x := s.extra()
	var until time.Time
	for u := x.unanswered; u != nil; u = u.next {
		until = clock.Later(until, u.until.Add(clock.Slack))
	}
	if x.late != nil {
		until = clock.Later(until, x.late.until)
	}
	if until.IsZero() {
		return 0
	}
	return time.Until(until)
}

// mayStillAcquire reports whether an unanswered try of the lease can still take effect.
func (h *lease) mayStillAcquire() bool {
	for u := h.readExtra().unanswered; u != nil; u = u.next {
		if clock.MayArrive(u.until) {
			return true
		}
	}
	return false
}
