package dibs

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs/internal/acquire"
)

// A token of the caller's choice belongs to one call or lease of the client at a time, on each name: see
// acquire.Acquirer.Reserve.

// A sameTokenError is the error of a call whose token is in use.
type sameTokenError struct{ name string }

func (e sameTokenError) Error() string {
	return fmt.Sprintf("dibs: acquire %q: another call or lease of this Client has the same owner token: unlock that lease first, or give each piece of work a token of its own", e.name)
}

// Unwrap makes errors.Is find ErrReentrant.
func (e sameTokenError) Unwrap() error { return ErrReentrant }

// choosesToken reports whether the call was given its token.
func (s *settings) choosesToken() bool {
	return (s.given[atCall] | s.given[atYield]).has(ownerTokenOption)
}

// acquireOwn acquires a lease whose token the caller has chosen. Until that lease is unlocked,
// no other call gets the token on one of the names.
func (c *Client) acquireOwn(ctx context.Context, w lockSpec, set settings) (lease *Lease, err error) {
	names := w.names()
	if name, ok := c.acquirer.Reserve(names, set.token); !ok {
		return nil, sameTokenError{name}
	}
	defer func() {
		if lease == nil { // what the call has left at the store is listed as a cancellation
			c.acquirer.Drop(names, set.token)
			return
		}
		lease.l.mu.Lock()
		defer lease.l.mu.Unlock()
		lease.l.hasToken = true
	}()
	return c.acquireNew(ctx, w, set)
}

// holdToken lists the token of an attached lease.
func (l *lease) holdToken() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hasToken = true
	l.c.acquirer.Hold(l.namesLocked(), l.state.Token)
}

// dropToken lets other calls use the token of a lease that is unlocked, when the result has
// ended and nothing of the lease can arrive at the store any more.
func (l *lease) dropToken() *acquire.Cancellation {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hasToken {
		return nil
	}
	l.hasToken = false
	names, cancelling := l.namesLocked(), l.cancellingLocked()
	l.c.acquirer.Drop(names, l.state.Token)
	return cancelling
}

// namesLocked returns the names of the lease.
func (l *lease) namesLocked() []string { return l.state.AcquireRequest("", 0).Names() }
