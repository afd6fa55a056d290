package dibs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/bootclock"
	"github.com/dibslock/dibs/internal/acquire"
	"github.com/dibslock/dibs/internal/clock"
	leasestate "github.com/dibslock/dibs/internal/lease"
	"github.com/dibslock/dibs/internal/load"
	"github.com/dibslock/dibs/internal/renew"
	"github.com/dibslock/dibs/internal/work"
)

// A Client creates locks on a store and renews their leases. All its leases share a client
// identity, which is part of their owner tokens. A Client is safe for concurrent use. A process
// should use a single Client per store.
//
// A Client runs two goroutines, however many leases it holds: a scheduler for deadlines and
// renewals, and a receiver for events from the store. Both start with the first lock and end with
// Close.
type Client struct {
	store      *acquire.Store
	defaults   settings
	id         string
	clock      *bootclock.Clock
	work       *work.Background
	acquirer   *acquire.Acquirer
	hooks      work.CallQueue
	started    atomic.Bool // the scheduler and the watch are running
	renewals   *renew.Scheduler[*lease]
	partlyLost partlyLost
	wanted     wantedSignals
	closeLimit work.CloseLimit

	stopping  atomic.Bool   // Shutdown has begun
	acquiring atomic.Int64  // calls that may become leases
	idle      chan struct{} // signals Shutdown when a call or a lease ended
}

// New returns a Client for a store. It does no I/O. The options are the defaults for all its locks;
// Check reports an invalid option. If the store is nil or a nil pointer, every call returns
// ErrInvalid.
func New(store driver.Store, options ...Option) *Client {
	c := &Client{
		defaults: defaults().with(atClient, options),
		id:       identity(),
		clock:    bootclock.New(),
		work:     work.NewBackground(),
		idle:     make(chan struct{}, 1),
	}
	gate := load.NewGate(c.clock.Now, func() { c.renewals.SendMore() }) // for requests that can be sent later
	c.renewals = renew.New[*lease](renewer{c}, c.clock, gate)
	if !driver.IsNil(store) {
		c.store = &acquire.Store{Full: driver.Complete(store), IsBack: c.renewals.Sample}
	}
	c.acquirer = &acquire.Acquirer{
		Sender: acquire.Sender{Clock: c.clock, Gate: gate}, Store: c.store, Work: c.work, Timeout: c.defaults.timeout,
	}
	return c
}

// settings returns the settings for a lock with these options. A nil Client returns the library's
// defaults, so its locks' calls return an error instead of panicking. Client.Mutex and similar
// methods are short enough to be inlined, which saves an allocation (TestMutexIsFree).
func (c *Client) settings(options []Option) settings {
	if c == nil {
		return defaults()
	}
	return c.defaults.with(atLock, options)
}

var errNoClient = invalid("the Client is nil, or was made without a Store: make it with dibs.New and a Store")

// check rejects a nil or zero Client, and a Client without a store.
func (c *Client) check() error {
	if c == nil || c.store == nil {
		return errNoClient
	}
	return nil
}

// begin starts a call for which Close waits. The first call also starts the scheduler and the
// watch. The caller ends the call with c.work.Done. After Close, begin returns false.
func (c *Client) begin() bool {
	if !c.work.Begin() {
		return false
	}
	c.start()
	return true
}

// start starts the scheduler and the watch, once.
func (c *Client) start() {
	if c.started.CompareAndSwap(false, true) {
		c.work.Loop(func() { c.renewals.Run(c.work.UntilEnd().Done()) })
		c.work.Loop(c.watch)
	}
}

// Close releases all leases, ends waiting calls with ErrClosed, stops renewal, and waits for
// background work. The leases' contexts end with ErrLost. The store and its connections stay open:
// their owner should close them afterwards. A second Close returns nil, and so does Close on a nil
// or zero Client.
//
// Close normally returns at once. It takes at most seven times the Timeout given to New (default 1
// s), however many leases the Client holds. Close returns an error if it could not release all
// leases in this time; the other leases expire in the store.
//
// A hook can call Close. Close then takes one Timeout longer, because it waits for that hook.
func (c *Client) Close() error {
	if c.check() != nil || !c.work.Close() {
		return nil
	}
	c.closeLimit.Begin(c.defaults.timeout)
	err := c.releaseAll(c.endAll())
	c.finish()
	return err
}

// endAll ends all leases and returns the leases to release.
func (c *Client) endAll() []*lease {
	var release []*lease
	for _, l := range c.renewals.Close() {
		mustRelease := false
		_ = l.update(func(s *leasestate.State) {
			mustRelease = !s.Reason().IsEnd()
			s.Lose(leasestate.End{Reason: leasestate.Closed})
		})
		if mustRelease {
			release = append(release, l)
		}
	}
	return append(release, c.partlyLost.removeAll()...)
}

// releaseAll releases leases concurrently, until Close's time limit. It uses many workers, because
// each lease on an unresponsive server occupies a worker until then.
func (c *Client) releaseAll(held []*lease) error {
	const workers = 512 // with more, a busy machine could not send its requests in time
	var (
		next   atomic.Int64
		failed atomic.Int64
		first  atomic.Pointer[error]
		group  sync.WaitGroup
	)
	for range min(workers, len(held)) {
		group.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(held); i = next.Add(1) - 1 {
				if err := c.releaseInTime(held[i]); err != nil && !errors.Is(err, ErrLost) {
					failed.Add(1)
					first.CompareAndSwap(nil, &err)
					c.closeLimit.Shorten(c.defaults.timeout)
				}
			}
		})
	}
	group.Wait()
	if err := first.Load(); err != nil {
		return fmt.Errorf("dibs: close: %d of %d leases not released, they expire with their TTLs; first error: %w",
			failed.Load(), len(held), *err)
	}
	return nil
}

// releaseInTime releases a lease, or fails after Close's time limit.
func (c *Client) releaseInTime(l *lease) error {
	if c.releaseBy(l).After(time.Now()) {
		return l.release()
	}
	return &UnavailableError{Op: opUnlock, Name: l.state.Name, Cause: context.DeadlineExceeded}
}

// releaseBy returns the deadline for a release that starts now.
func (c *Client) releaseBy(l *lease) time.Time {
	return c.closeLimit.Limit(l.timeout(), clock.Times(2, c.defaults.timeout))
}

// finish gives clean-up and hooks an operation timeout, then ends all background work. It waits at
// most a second timeout, because the work still running may be Close's own caller, in a hook of
// dibs or of the store's client.
func (c *Client) finish() {
	grace, cancel := context.WithTimeout(context.Background(), c.defaults.timeout)
	defer cancel()
	c.work.WaitJobs(grace)
	c.work.End()
	limit, cancel := context.WithTimeout(context.Background(), c.defaults.timeout)
	defer cancel()
	c.work.WaitAll(limit)
	c.hooks.Wait(limit)
}
