package acquire

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
)

// tokens lists how a client uses tokens of callers' choice on names. Tokens that dibs makes are never
// reused and not listed. The zero value is ready for use. It is safe for concurrent use.
//
// The store grants a name again to the token that holds it, because a request may be repeated. So two
// calls with one token would both get the lock. And a late cancel of an earlier call would end the
// lease of a later one. So a later call waits until no request is in progress that releases or cancels
// what the token held, and none can arrive.
type tokens struct {
	mu   sync.Mutex
	uses map[ownedName]*tokenUse
}

// ownedName is a name with the token that holds it.
type ownedName struct{ name, token string }

// A tokenUse counts what uses one token on one name.
type tokenUse struct {
	holders   int           // calls and leases; more than one with an attached lease
	cancels   int           // cancellations in progress
	cancelled chan struct{} // closed when cancels is zero again; nil before the first one
}

// Reserve lists a token for a call with these names, unless another call or lease has it on one of them.
// Then it returns that name.
func (a *Acquirer) Reserve(names []string, token string) (taken string, ok bool) {
	t := &a.tokens
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		if u := t.uses[ownedName{name, token}]; u != nil && u.holders > 0 {
			return name, false
		}
	}
	t.addLocked(names, token, 1, 0)
	return "", true
}

// Hold lists a token of an attached lease, which may be that of another lease.
func (a *Acquirer) Hold(names []string, token string) { a.tokens.add(names, token, 1, 0) }

// Drop ends a Reserve or a Hold.
func (a *Acquirer) Drop(names []string, token string) { a.tokens.add(names, token, -1, 0) }

func (t *tokens) add(names []string, token string, holders, cancels int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addLocked(names, token, holders, cancels)
}

func (t *tokens) addLocked(names []string, token string, holders, cancels int) {
	if t.uses == nil {
		t.uses = make(map[ownedName]*tokenUse)
	}
	for _, name := range names {
		key := ownedName{name, token}
		u := t.uses[key]
		if u == nil {
			u = new(tokenUse)
			t.uses[key] = u
		}
		if cancels > 0 && u.cancels == 0 {
			u.cancelled = make(chan struct{})
		}
		u.holders, u.cancels = u.holders+holders, u.cancels+cancels
		if cancels < 0 && u.cancels == 0 {
			close(u.cancelled)
		}
		if u.holders == 0 && u.cancels == 0 {
			delete(t.uses, key)
		}
	}
}

// cancelling returns a channel that is closed when a cancellation in progress has ended for one of these
// names, or nil if there is none.
func (t *tokens) cancelling(names []string, token string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		if u := t.uses[ownedName{name, token}]; u != nil && u.cancels > 0 {
			return u.cancelled
		}
	}
	return nil
}

// A Cancellation is one request, or a series of them, that ends what one token holds. A
// nil Cancellation belongs to a token that is never reused, and does nothing. It is safe for
// concurrent use.
type Cancellation struct {
	tokens *tokens
	names  []string
	token  string

	mu        sync.Mutex
	lateUntil time.Time // a request without an answer may arrive until then
}

// Cancelling lists the end of what a token of the caller's choice holds on names. Until the result has
// ended, no call with this token begins.
func (a *Acquirer) Cancelling(names []string, token string) *Cancellation {
	a.tokens.add(names, token, 0, 1)
	return &Cancellation{tokens: &a.tokens, names: names, token: token}
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

func (c *Cancellation) unlist() { c.tokens.add(c.names, c.token, 0, -1) }

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
		cancelled := c.a.tokens.cancelling(names, c.request.Token)
		if cancelled == nil {
			return Outcome{}
		}
		select {
		case <-cancelled:
		case <-limit.C:
			return c.stillCancelling(nil)
		case <-ctx.Done():
			return c.stillCancelling(context.Cause(ctx))
		case <-c.limits.Life(c.a.Work).Done():
			return Outcome{Why: Closed}
		}
	}
}

func (c *Call) stillCancelling(ended error) Outcome {
	return Outcome{Why: Failed, Err: &driver.UnavailableError{
		Op: "acquire", Name: c.request.Name, Cause: errors.Join(errCancelling, ended), Refused: true,
	}}
}
