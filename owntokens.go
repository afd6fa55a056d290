package dibs

import (
	"context"
	"fmt"
	"sync"

	"github.com/dibslock/dibs/internal/acquire"
)

// ownedName is a name with the token that holds it.
type ownedName struct{ name, token string }

// ownTokens lists the tokens of the callers' choice that calls and leases of a client have on
// their names. The store grants a name again to the token that holds it, because a request may
// be repeated. So two calls with one token would both get the lock. Tokens that dibs makes are
// not listed. The zero value is ready for use. It is safe for concurrent use.
type ownTokens struct {
	mu   sync.Mutex
	used map[ownedName]int // more than one with an attached lease
}

// reserve lists a token with all names of a request. It returns ErrReentrant if it is listed with
// one of them.
func (o *ownTokens) reserve(names []string, token string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		if o.used[ownedName{name, token}] > 0 {
			return sameTokenError{name}
		}
	}
	o.add(names, token, 1)
	return nil
}

// addAttached lists a token of an attached lease, which is that of another lease.
func (o *ownTokens) addAttached(names []string, token string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(names, token, 1)
}

func (o *ownTokens) drop(names []string, token string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(names, token, -1)
}

func (o *ownTokens) add(names []string, token string, by int) {
	if o.used == nil {
		o.used = make(map[ownedName]int)
	}
	for _, name := range names {
		key := ownedName{name, token}
		if o.used[key] += by; o.used[key] == 0 {
			delete(o.used, key)
		}
	}
}

// A sameTokenError is the error of a call whose token is in use.
type sameTokenError struct{ name string }

func (e sameTokenError) Error() string {
	return fmt.Sprintf("dibs: acquire %q: another call or lease of this Client has the same Token: unlock that lease first, or give each piece of work a token of its own", e.name)
}

// Unwrap makes errors.Is find ErrReentrant.
func (e sameTokenError) Unwrap() error { return ErrReentrant }

// choosesToken reports whether the call was given its token.
func (s *settings) choosesToken() bool { return s.given[atCall].has(tokenOption) }

// acquireOwn acquires a lease whose token the caller has chosen. Until that lease is unlocked,
// no other call gets the token on one of the names.
func (c *Client) acquireOwn(ctx context.Context, w lockSpec, set settings) (lease *Lease, err error) {
	names := w.names()
	if err := c.ownTokens.reserve(names, set.token); err != nil {
		return nil, err
	}
	defer func() {
		if lease == nil { // what the call has left at the store is listed as a cancellation
			c.ownTokens.drop(names, set.token)
			return
		}
		lease.h.mu.Lock()
		defer lease.h.mu.Unlock()
		lease.h.hasToken = true
	}()
	return c.acquireNew(ctx, w, set)
}

// listAttachedToken lists the token of an attached lease that was confirmed.
func (h *lease) listAttachedToken() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ownToken || h.hasToken || h.ended {
		return
	}
	h.hasToken = true
	h.c.ownTokens.addAttached(h.acquireRequest("", h.c.clock.Now()).Names(), h.token)
}

// dropToken lets other calls use the token of a lease that is unlocked, when the result has
// ended and nothing of the lease can arrive at the store any more.
func (h *lease) dropToken() *acquire.Cancellation {
	h.mu.Lock()
	has, names, cancelling := h.hasToken, []string(nil), (*acquire.Cancellation)(nil)
	if has {
		names, cancelling = h.acquireRequest("", 0).Names(), h.cancellingLocked()
	}
	h.hasToken = false
	h.mu.Unlock()
	if !has {
		return nil
	}
	h.c.ownTokens.drop(names, h.token)
	return cancelling
}
