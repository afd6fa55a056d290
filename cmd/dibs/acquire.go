package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cmd/dibs/internal/monitor"
	"github.com/dibslock/dibs/dashboard/view"
)

// waitForLock acquires the names. While it waits, it shows the holder. A termination
// signal ends the wait.
func (s *session) waitForLock(c *lockRequest) (*dibs.Lease, error) {
	if err := s.refuseDeadlock(c); err != nil {
		return nil, err
	}
	ctx, stop := s.signals.context()
	s.monitor.SetWaiting(c.names, c.waits())
	p := s.progress(c.names)
	defer p.end()
	away := monitor.IsUnreached // any other failure says the cause
	if c.waits() {
		away = s.isAway
	}
	lease, err := s.retryWhile(ctx, away, p.begun.Add(c.patience(s.store.timeout)), func() (*dibs.Lease, error) {
		p.end() // from an earlier attempt, with another client
		options := append(c.options(time.Since(p.begun)), dibs.Observe(p.hooks()))
		return tryAcquire(ctx, s.locks, c, options)
	})
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
		return locks.All(c.names).Lock(ctx, options...)
	case c.shared:
		return locks.RWMutex(name).Reader().Lock(ctx, options...)
	case c.slots > 0:
		return locks.Semaphore(name, c.slots).Permits(c.permits).Lock(ctx, options...)
	}
	return locks.Mutex(name).Lock(ctx, options...)
}

// isAway reports whether the store may answer a later attempt. A rejected request may succeed if
// the store has answered before: somebody changed something.
func (s *session) isAway(err error) bool {
	return monitor.IsAway(err) || errors.Is(err, dibs.ErrUnavailable) && s.monitor.Answered()
}

// retryWhile calls acquire while the store is away, until a time, or until ctx ends. Between two
// attempts it keeps no connection: the server may be full, and others wait for a connection.
func (s *session) retryWhile(ctx context.Context, away func(error) bool, until time.Time, acquire func() (*dibs.Lease, error)) (*dibs.Lease, error) {
	const shortest, longest = 100 * time.Millisecond, 5 * time.Second
	for pause := shortest; ; pause = min(2*pause, longest) {
		lease, err := acquire()
		if !away(err) {
			return lease, err
		}
		left := time.Until(until)
		// Many processes have failed at the same moment.
		if left <= 0 || !sleep(ctx, min(pause/2+rand.N(pause), left)) {
			return nil, err
		}
		s.reconnect()
	}
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
