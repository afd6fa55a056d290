package acquire

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
)

// cancellations lists the requests in progress that release or cancel earlier calls with
// tokens of the caller's choice. Such a token may be used again, and a late cancel of the
// earlier call would end the lease of the later one. So a later call waits until no such
// request is in progress and none can arrive any more. Tokens that dibs makes are never
// reused and not listed. The zero value is ready for use. It is safe for concurrent use.
type cancellations struct {
	mu      sync.Mutex
	pending map[ownedName]*pendingCancel
}

// ownedName is a name with the token that holds it.
type ownedName struct{ name, token string }

// pendingCancel counts the cancellations of one name and token.
type pendingCancel struct {
	count int
	done  chan struct{} // closed when count is zero
}

// A Cancellation is one request, or a series of them, that ends what one token holds. A
// nil Cancellation belongs to a token that is never reused, and does nothing. It is safe for
// concurrent use.
type Cancellation struct {
	all   *cancellations
	names []string
	token string

	mu        sync.Mutex
	lateUntil time.Time // a request without an answer may arrive until then
}

// begin lists a cancellation of names, if the token is the caller's own.
func (c *cancellations) begin(names []string, token string, own bool) *Cancellation {
	if !own {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		key := ownedName{name, token}
		if c.pending[key] == nil {
			if c.pending == nil {
				c.pending = make(map[ownedName]*pendingCancel)
			}
			c.pending[key] = &pendingCancel{done: make(chan struct{})}
		}
		c.pending[key].count++
	}
	return &Cancellation{all: c, names: names, token: token}
}

// Unanswered records that a request may arrive at the store until then.
func (c *Cancellation) Unanswered(until time.Time) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lateUntil = clock.Later(c.lateUntil, until)
}

// End removes the cancellation from the list as soon as none of its requests can arrive.
func (c *Cancellation) End() {
	if c == nil {
		return
	}
	c.mu.Lock()
	late := c.lateUntil
	c.mu.Unlock()
	if clock.MayArrive(late) {
		time.AfterFunc(clock.Add(time.Until(late), clock.Slack), c.unlist)
		return
	}
	c.unlist()
}

func (c *Cancellation) unlist() {
	all := c.all
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, name := range c.names {
		key := ownedName{name, c.token}
		p := all.pending[key]
		if p.count--; p.count == 0 {
			close(p.done)
			delete(all.pending, key)
		}
	}
}

// first returns a cancellation in progress for one of these names, or nil.
func (c *cancellations) first(names []string, token string) *pendingCancel {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if p := c.pending[ownedName{name, token}]; p != nil {
			return p
		}
	}
	return nil
}

var errCancelling = errors.New("an earlier call with this token is still being cancelled: retry later, or use another token")

// awaitCancelled waits until no earlier call with the caller's own token is being
// cancelled. Its limit is the time of two operations. It returns why that is not so.
func (c *Call) awaitCancelled(ctx context.Context) Outcome {
	if !c.own {
		return Outcome{}
	}
	limit := time.NewTimer(clock.Add(clock.Times(2, c.limits.Timeout), clock.Slack))
	defer limit.Stop()
	names := c.request.Names()
	for {
		p := c.a.cancellations.first(names, c.request.Token)
		if p == nil {
			return Outcome{}
		}
		select {
		case <-p.done:
		case <-limit.C:
			return c.stillCancelling(nil)
		case <-ctx.Done():
			return c.stillCancelling(context.Cause(ctx))
		case <-c.a.Work.Open().Done():
			return Outcome{Why: Closed}
		}
	}
}

func (c *Call) stillCancelling(ended error) Outcome {
	return Outcome{Why: Failed, Err: &driver.UnavailableError{
		Op: "acquire", Name: c.request.Name, Cause: errors.Join(errCancelling, ended), Refused: true,
	}}
}
