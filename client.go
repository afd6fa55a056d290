package dibs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/acquire"
	"github.com/dibslock/dibs/internal/clock"
	leasestate "github.com/dibslock/dibs/internal/lease"
	"github.com/dibslock/dibs/internal/load"
	"github.com/dibslock/dibs/internal/renew"
	"github.com/dibslock/dibs/internal/work"
)

// A Client creates locks on one store and renews their leases. All its leases share one
// client identity, which is part of their tokens. It is safe for concurrent use; a
// process needs one per store.
//
// A Client runs two goroutines, however many leases it holds: one for deadlines and
// renewals, one that receives events from the store. Both start with the first lock and
// end with Close.
type Client struct {
	store      *acquire.Store
	defaults   settings
	id         string
	clock      *clock.Clock
	work       *work.Background
	acquirer   *acquire.Acquirer
	hooks      work.CallQueue
	started    atomic.Bool // the scheduler and the watch
	renewals   *renew.Scheduler[*lease]
	partlyLost partlyLost
	wanted     wantedSignals
	closeLimit work.CloseLimit

	stopping  atomic.Bool   // Shutdown has begun
	acquiring atomic.Int64  // calls that may become leases
	idle      chan struct{} // signals Shutdown that a call or a lease has ended
}

// New returns a Client on a store. It does no I/O. The options are the defaults of all
// its locks; Check reports one that is invalid. If the store is nil, or a nil pointer, each call
// returns ErrInvalid.
func New(store driver.Store, options ...Option) *Client {
	c := &Client{
		defaults: defaults().with(atClient, options),
		id:       identity(),
		clock:    clock.New(),
		work:     work.NewBackground(),
		idle:     make(chan struct{}, 1),
	}
	gate := load.NewGate(c.clock.Now, func() { c.renewals.SendMore() }) // of the requests that need not be sent at once
	c.renewals = renew.New[*lease](renewer{c}, c.clock, gate)
	if !driver.IsNil(store) {
		c.store = &acquire.Store{Full: driver.Complete(store), IsBack: c.renewals.Sample}
	}
	c.acquirer = &acquire.Acquirer{
		Sender: acquire.Sender{Clock: c.clock, Gate: gate}, Store: c.store, Work: c.work, Timeout: c.defaults.timeout,
	}
	return c
}

// settings returns the settings of a lock with these options. A nil Client has the defaults of
// the library, so that the calls of its locks return an error, and do not panic. Client.Mutex and
// the like are short enough to be inlined, and then cost no allocation (TestMutexIsFree).
func (c *Client) settings(options []Option) settings {
	if c == nil {
		return defaults()
	}
	return c.defaults.with(atLock, options)
}

var errNoClient = invalid("the Client is nil, or was made without a Store: make it with dibs.New and a Store")

// check rejects a nil or zero Client, and one without a store.
func (c *Client) check() error {
	if c == nil || c.store == nil {
		return errNoClient
	}
	return nil
}

// begin starts a call that Close waits for, and with the first call the scheduler and the
// watch. The caller ends it with c.work.Done. begin returns false after Close.
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

// Close releases all leases, ends waiting calls with ErrClosed, stops renewal, and waits
// for background work. Contexts of leases end with ErrLost. The store and its connections
// stay open; their owner closes them. A second Close returns nil, and so does that of a nil or
// zero Client.
//
// Close normally returns at once. It takes at most seven operation timeouts of the
// Client, however many leases it holds. It returns an error if leases could not be released
// in that time; they expire at the store.
//
// A hook may call Close. Close then waits for that hook in vain, for one operation
// timeout.
func (c *Client) Close() error {
	if c.check() != nil || !c.work.Close() {
		return nil
	}
	c.closeLimit.Begin(c.defaults.timeout)
	err := c.releaseAll(c.endAll())
	c.finish()
	return err
}

// endAll ends all leases, and returns those that must be released.
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

// releaseAll releases leases concurrently, until the limit of Close. It uses many workers, because
// each lease on an unresponsive server occupies one of them until then.
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

// releaseInTime releases a lease, or fails if the time limit of Close has passed.
func (c *Client) releaseInTime(l *lease) error {
	if c.releaseBy(l).After(time.Now()) {
		return l.release()
	}
	return &UnavailableError{Op: opUnlock, Name: l.state.Name, Cause: context.DeadlineExceeded}
}

// releaseBy returns the time limit of a release that begins now.
func (c *Client) releaseBy(l *lease) time.Time {
	return c.closeLimit.Limit(l.timeout(), clock.Times(2, c.defaults.timeout))
}

// finish gives clean-up and hooks one operation timeout, and then ends all background
// work. It does not wait for what still runs after a second timeout. That may be the
// caller of Close itself, in a hook of dibs or of the store's own client.
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
