package acquire

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
)

// tokens records where a client uses tokens chosen by callers. Tokens made by dibs are never reused
// and not listed. The zero value is ready for use. It is safe for concurrent use.
//
// The store grants a name again to the token that holds it, because a request may be repeated. So
// two calls with the same token would both get the lock. And a late cancel for an earlier call
// would end a later call's lease. So a later call waits until no request to release or cancel the
// token's lease is in progress, and none can arrive.
type tokens struct {
	mu   sync.Mutex
	uses map[ownedName]*tokenUse
}

// ownedName is a name with the token that holds it.
type ownedName struct{ name, token string }

// A tokenUse counts the uses of a token on a name.
type tokenUse struct {
	holders   int           // calls and leases; more than one with an attached lease
	cancels   int           // cancellations in progress
	cancelled chan struct{} // closed when cancels is zero again; nil before the first cancel
}

// Reserve lists a token for a call with these names. If another call or lease already uses the
// token on any of them, Reserve returns that name.
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

// Hold lists an attached lease's token, which another lease may also use.
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

// cancelling returns a channel that is closed when a cancellation for any of these names ends, or
// nil if there is none.
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

// A Cancellation is a request, or a series of requests, that ends a token's lease. A nil
// Cancellation belongs to a token that is never reused, and does nothing. It is safe for concurrent
// use.
type Cancellation struct {
	tokens *tokens
	names  []string
	token  string

	mu        sync.Mutex
	lateUntil time.Time // a request without an answer may arrive until then
}

// Cancelling records that leases with a caller's own token are being ended. Until the result ends,
// no call with this token begins.
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

// End removes the cancellation when none of its requests can arrive any more.
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

// awaitCancelled waits until no earlier call with the caller's own token is being cancelled, for at
// most two operation timeouts. It returns an error if it cannot wait that long.
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
