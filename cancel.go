package dibs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A doubt is an acquire that was not answered: it may still arrive at the store, and
// take the name again after its lease was released.
type unansweredTry struct {
	request driver.AcquireRequest
	until   time.Time // it is void afterwards
	next    *unansweredTry
}

// and returns the doubts of both.
func (d *unansweredTry) merge(o *unansweredTry) *unansweredTry {
	if d == nil {
		return o
	}
	d.next = d.next.merge(o)
	return d
}

// dispel removes, in the background, what the unanswered tries of a lease that has
// ended may still leave at the store.
func (h *leaseState) cancelUnanswered() {
	for d := h.unanswered; d != nil; d = d.next {
		if mayArrive(d.until) {
			h.c.cancel(d.request, h.ownToken, d.until)
		}
	}
}

// doubtful reports whether an unanswered try of the lease can still take effect.
func (h *leaseState) mayStillAcquire() bool {
	for d := h.unanswered; d != nil; d = d.next {
		if mayArrive(d.until) {
			return true
		}
	}
	return false
}

// mayArrive reports whether a request that is void after until can still take effect.
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

// undoings are the requests that undo an earlier call whose token was chosen by the
// caller. Such a token may be used again, and a request of the earlier call would end
// the lease of the later one. So a later call waits until none is under way and none
// can arrive any more. Tokens that dibs makes are never used twice, and not listed.
type cancellations struct {
	mu      sync.Mutex
	pending map[ownedName]*pendingCancel
}

// owned is a name with the token that holds it.
type ownedName struct{ name, token string }

// underway counts the undoings of one name and token.
type pendingCancel struct {
	count int
	over  chan struct{} // closed when count is zero
}

// An undoing is one request, or a series of them, that ends what one token holds. A nil
// undoing, of a token that is never used again, does nothing.
type cancellation struct {
	all   *cancellations
	names []string
	token string

	mu        sync.Mutex
	lateUntil time.Time // a request without an answer may arrive until then
}

// begin lists an undoing of a claim, if the token is the caller's own.
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
			u.pending[key] = &pendingCancel{over: make(chan struct{})}
		}
		u.pending[key].count++
	}
	return d
}

// unanswered notes that a request may arrive until then.
func (d *cancellation) unanswered(until time.Time) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lateUntil = later(d.lateUntil, until)
}

// end unlists the undoing, once nothing of it can arrive any more.
func (d *cancellation) end() {
	if d == nil {
		return
	}
	d.mu.Lock()
	late := d.lateUntil
	d.mu.Unlock()
	if mayArrive(late) {
		time.AfterFunc(time.Until(late)+clockSlack, d.unlist)
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
			close(w.over)
			delete(u.pending, key)
		}
	}
}

// first returns an undoing of one of these names that is under way, or nil.
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

var errCancelling = errors.New("an earlier call with this token is still being undone: try again, or use another token")

// awaitUndone waits until no earlier call with the caller's own token is being undone:
// for as long as two operations may take.
func (q *call) awaitCancelled() error {
	if !q.ownToken() {
		return nil
	}
	limit := time.NewTimer(2*q.settings.timeout + clockSlack)
	defer limit.Stop()
	names := q.request.Names()
	for {
		w := q.c.cancellations.first(names, q.request.Token)
		if w == nil {
			return nil
		}
		select {
		case <-w.over:
		case <-limit.C:
			return q.stillCancelling(nil)
		case <-q.ctx.Done():
			return q.stillCancelling(context.Cause(q.ctx))
		case <-q.c.closing:
			return ErrClosed
		}
	}
}

func (q *call) stillCancelling(ended error) error {
	return &UnavailableError{Op: "acquire", Name: q.request.Name, Cause: errors.Join(errCancelling, ended), Refused: true}
}
