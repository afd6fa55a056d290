package dibs

import (
	"context"
	"errors"
	"fmt"

	"github.com/dibslock/dibs/internal/leasekey"
)

// Shutdown ends the Client in good order, as http.Server.Shutdown ends a server: it waits until all
// leases were unlocked, and then closes the Client. Meanwhile
//
//   - a call that waits for a lock or requests one returns ErrClosed,
//   - the contexts of the terms of elections end with cause ErrResigned, and Election.Run returns nil
//     when the work of its term has returned,
//   - work under a lock continues: leases are renewed, and a call whose context carries a lease of this
//     Client, or a fence of WithFence, may acquire and wait. So may Yield, and a campaign may not.
//
// If ctx ends first, Shutdown closes the Client at once, as Close does: the leases that are left are
// lost. The error has the cause of ctx and the error of Close. Leases of Attach count as all others;
// Detach ends a lease that another owner keeps.
//
// Call it after the server that begins the work was shut down. Shutdown under a lock of the Client,
// or in its hook AcquireEnd, waits for itself until ctx ends. It may be called at any time, also
// several times at once and after Close.
func (c *Client) Shutdown(ctx context.Context) error {
	if c.check() != nil {
		return nil
	}
	c.stopping.Store(true)
	c.work.Drain()
	for _, l := range c.renewals.All() {
		resign(l)
	}
	return errors.Join(c.awaitIdle(ctx), c.Close())
}

// awaitIdle waits until there is no lease, and no call that may become one.
func (c *Client) awaitIdle(ctx context.Context) error {
	defer c.signalIdle()                                 // another Shutdown may wait for the same signal
	for c.acquiring.Load() > 0 || c.renewals.Len() > 0 { // in this order: a call becomes a lease
		select {
		case <-c.idle:
		case <-ctx.Done():
			return fmt.Errorf("dibs: shutdown: %d leases were still held: %w", c.renewals.Len(), context.Cause(ctx))
		}
	}
	return nil
}

// signalIdle makes Shutdown check again.
func (c *Client) signalIdle() {
	if !c.stopping.Load() {
		return
	}
	select {
	case c.idle <- struct{}{}:
	default:
	}
}

// beginAcquire begins a call that may become a lease. After Shutdown only those begin that are part
// of work under a lock. The caller ends it with endAcquire.
func (c *Client) beginAcquire(continues bool) bool {
	c.acquiring.Add(1) // before stopping is read: Shutdown sets it, and then reads acquiring
	if c.stopping.Load() && !continues || !c.begin() {
		c.leaveAcquire()
		return false
	}
	return true
}

func (c *Client) endAcquire() {
	c.work.Done()
	c.leaveAcquire()
}

func (c *Client) leaveAcquire() {
	c.acquiring.Add(-1)
	c.signalIdle()
}

// continuesWork reports whether a context is that of work under a lock of a client: it carries a held
// lease, or a fence that WithFence has added.
func continuesWork(ctx context.Context, c *Client) bool {
	for {
		switch in := ctx.Value(leasekey.Key{}).(type) {
		case *carriedLease:
			if handle := in.current(); handle.lease().c == c && handle.Err() == nil {
				return true
			}
			ctx = in.Context
		case *carriedFence:
			return true
		default:
			return false
		}
	}
}
