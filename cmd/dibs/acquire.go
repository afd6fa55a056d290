package main

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cmd/dibs/internal/monitor"
	"github.com/dibslock/dibs/internal/view"
)

// waitForLock acquires the names. While it waits, it shows the holder. A termination
// signal ends the wait.
func (s *session) waitForLock(c *lockRequest) (*dibs.Lease, error) {
	const pause = 100 * time.Millisecond // between attempts to reach a server that may be starting
	if err := s.refuseDeadlock(c); err != nil {
		return nil, err
	}
	ctx, stop := s.signals.context()
	s.monitor.SetWaiting(c.names)
	p := s.progress(c.names)
	defer p.end()
	options := append(c.options(), dibs.Observe(p.hooks()))
	lease, err := tryAcquire(ctx, s.locks, c, options)
	for monitor.Unsent(err) && !c.try && time.Since(p.begun) < s.store.timeout && sleep(ctx, pause) {
		lease, err = tryAcquire(ctx, s.locks, c, options)
	}
	signalled := stop()
	var busy *dibs.BusyError
	switch {
	case signalled != nil && err == nil:
		return nil, errors.Join(signalled, lease.Unlock())
	case signalled != nil:
		return nil, signalled
	case errors.As(err, &busy):
		return nil, c.busyError(busy, s.monitor.CurrentOutage())
	case err != nil:
		return nil, err
	}
	s.monitor.SetHolding(lease)
	s.logVerbose("acquired %s after %s, fence %d", view.Quoted(c.names), view.Brief(time.Since(p.begun)), lease.FenceOf(c.names[0]))
	return lease, nil
}

func tryAcquire(ctx context.Context, locks *dibs.Client, c *lockRequest, options []dibs.Option) (*dibs.Lease, error) {
	name := c.names[0]
	switch {
	case len(c.names) > 1:
		return locks.All(c.names...).Lock(ctx, options...)
	case c.shared:
		return locks.RWMutex(name).RLock(ctx, options...)
	case c.slots > 0:
		return locks.Semaphore(name, c.slots).Acquire(ctx, c.permits, options...)
	}
	return locks.Mutex(name).Lock(ctx, options...)
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
