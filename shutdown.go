package dibs

import (
	"context"
	"errors"
	"fmt"
)

// Shutdown ends the Client in good order, as http.Server.Shutdown ends a server: it waits until all
// leases are unlocked, and then closes the Client. Meanwhile
//
//   - a call that waits for a lock or requests a lock returns ErrClosed,
//   - the contexts for election terms end with cause ErrResigned, and Election.Run returns nil when
//     its work returned,
//   - work under a lock continues: leases are renewed, and Yield can wait. So can a call whose
//     context carries a lease of this Client, or a fence from WithFence, except a campaign.
//
// If ctx ends first, Shutdown closes the Client at once, as Close does, and the remaining leases
// are lost. The error then contains ctx's cause and Close's error. Shutdown also waits for leases
// from Attach. If another owner keeps such a lock, call Lease.Detach to end this Client's lease.
//
// A program should call Shutdown after shutting down the server that starts the work. Do not call
// Shutdown under a lock of the Client or in its hook AcquireEnd: it then waits for its own caller
// until ctx ends. It can be called at any time, also concurrently, repeatedly and after Close.
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

// awaitIdle waits until there is no lease, and no call that can become a lease.
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

// beginAcquire starts a call that can become a lease. After Shutdown it only starts calls within
// work under a lock. The caller ends the call with endAcquire.
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

// continuesWork reports whether ctx belongs to work under a client's lock: it carries a held lease,
// or a fence from WithFence.
func continuesWork(ctx context.Context, c *Client) bool {
	for lease := range carriers(ctx) {
		if lease == nil {
			return true
		}
		if handle := lease.current(); handle.lease().c == c && handle.Err() == nil {
			return true
		}
	}
	return false
}
