package dibs

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs/internal/acquire"
)

// A token chosen by the caller belongs to a single call or lease of the client at a time, on each
// name: see acquire.Acquirer.Reserve.

// A sameTokenError is the error for a call whose token is in use.
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

// acquireOwn acquires a lease with the caller's token. Until the lease is unlocked, no other call
// can use the token on its names.
func (c *Client) acquireOwn(ctx context.Context, w lockSpec, set settings) (lease *Lease, err error) {
	names := w.names()
	if name, ok := c.acquirer.Reserve(names, set.token); !ok {
		return nil, sameTokenError{name}
	}
	defer func() {
		if lease == nil { // the call's remains in the store are listed as a cancellation
			c.acquirer.Drop(names, set.token)
			return
		}
		lease.l.mu.Lock()
		defer lease.l.mu.Unlock()
		lease.l.hasToken = true
	}()
	return c.acquireNew(ctx, w, set)
}

// holdToken lists an attached lease's token.
func (l *lease) holdToken() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hasToken = true
	l.c.acquirer.Hold(l.namesLocked(), l.state.Token)
}

// dropToken lets other calls use an unlocked lease's token. They wait until the result has ended
// and no request for the lease can arrive at the store any more.
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

// namesLocked returns the lease's names.
func (l *lease) namesLocked() []string { return l.state.AcquireRequest("", 0).Names() }
