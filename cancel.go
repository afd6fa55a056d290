package dibs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
	leasestate "github.com/dibslock/dibs/internal/lease"
)

// cancelUnanswered cancels, in the background, the unanswered tries of a lease that has
// ended.
func (h *lease) cancelUnanswered() {
	for u := h.unanswered(); u != nil; u = u.Next {
		if mayArrive(u.Until) {
			h.c.cancel(h.values(), u.Request, h.ownToken, u.Until)
		}
	}
}

// unanswered returns the acquires of the lease that had no answer.
func (h *lease) unanswered() *leasestate.Unanswered {
	defer h.Unlock()
	return h.Lock().Unanswered()
}

// mayStillAcquire reports whether an unanswered try of the lease can still take effect.
func (h *lease) mayStillAcquire() bool {
	for u := h.unanswered(); u != nil; u = u.Next {
		if mayArrive(u.Until) {
			return true
		}
	}
	return false
}

// mayArrive reports whether a request that has no effect after until can still take
// effect.
func mayArrive(until time.Time) bool {
	return !until.IsZero() && time.Since(until) <= clockSlack
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// cancellations lists the requests in progress that release or cancel earlier calls with
// tokens of the caller's choice. Such a token may be used again, and a late cancel of the
// earlier call would end the lease of the later one. So a later call waits until no such
// request is in progress and none can arrive any more. Tokens that dibs makes are never
// reused and not listed.
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

// A cancellation is one request, or a series of them, that ends what one token holds. A
// nil cancellation belongs to a token that is never reused, and does nothing.
type cancellation struct {
	all   *cancellations
	names []string
	token string

	mu        sync.Mutex
	lateUntil time.Time // a request without an answer may arrive until then
}

// begin lists a cancellation of a request, if the token is the caller's own.
func (u *cancellations) begin(c driver.AcquireRequest, own bool) *cancellation {
	if !own {
		return nil
	}
	d := &cancellation{all: u, names: c.Names(), token: c.Token}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range d.names {
		key := ownedName{name, d.token}
		if u.pending[key] == nil {
			if u.pending == nil {
				u.pending = make(map[ownedName]*pendingCancel)
			}
			u.pending[key] = &pendingCancel{done: make(chan struct{})}
		}
		u.pending[key].count++
	}
	return d
}

// unanswered records that a request may arrive at the store until then.
func (d *cancellation) unanswered(until time.Time) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lateUntil = later(d.lateUntil, until)
}

// end removes the cancellation from the list as soon as none of its requests can arrive.
func (d *cancellation) end() {
	if d == nil {
		return
	}
	d.mu.Lock()
	late := d.lateUntil
	d.mu.Unlock()
	if mayArrive(late) {
		time.AfterFunc(clock.Add(time.Until(late), clockSlack), d.unlist)
		return
	}
	d.unlist()
}

func (d *cancellation) unlist() {
	u := d.all
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range d.names {
		key := ownedName{name, d.token}
		w := u.pending[key]
		if w.count--; w.count == 0 {
			close(w.done)
			delete(u.pending, key)
		}
	}
}

// first returns a cancellation in progress for one of these names, or nil.
func (u *cancellations) first(names []string, token string) *pendingCancel {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range names {
		if w := u.pending[ownedName{name, token}]; w != nil {
			return w
		}
	}
	return nil
}

var errCancelling = errors.New("an earlier call with this token is still being cancelled: retry later, or use another token")

// awaitCancelled waits until no earlier call with the caller's own token is being
// cancelled. Its limit is the time of two operations.
func (q *call) awaitCancelled() error {
	if !q.ownToken() {
		return nil
	}
	limit := time.NewTimer(clock.Add(clock.Times(2, q.settings.timeout), clockSlack))
	defer limit.Stop()
	names := q.request.Names()
	for {
		w := q.c.cancellations.first(names, q.request.Token)
		if w == nil {
			return nil
		}
		select {
		case <-w.done:
		case <-limit.C:
			return q.stillCancelling(nil)
		case <-q.ctx.Done():
			return q.stillCancelling(context.Cause(q.ctx))
		case <-q.c.work.Open().Done():
			return ErrClosed
		}
	}
}

func (q *call) stillCancelling(ended error) error {
	return &UnavailableError{Op: "acquire", Name: q.request.Name, Cause: errors.Join(errCancelling, ended), Refused: true}
}
