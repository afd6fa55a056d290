package dibs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Client hands out locks on one Store under one identity, and keeps the leases
// it was given alive. It is safe for concurrent use; a process needs one per
// store.
//
// However many leases it holds, a Client runs one scheduler goroutine for their
// deadlines and renewals, and one that listens to the store. Both begin with the
// first lock and end with Close.
type Client struct {
	store           driver.Store
	defaults        settings
	id              string
	epoch           time.Time            // now counts from here
	suspended       func() time.Duration // how long the machine was, since it started
	suspendedBefore time.Duration        // what the machine had been suspended by then
	suspendedFor    atomic.Int64         // what it was since, in ns
	wallOffset      atomic.Int64         // by how much the wall clock was ahead of the epoch's, in ns
	seq             atomic.Uint64
	cancellations   cancellations // of tokens that callers have chosen
	unhealthy       atomic.Bool   // an operation has failed since the last that did not
	rtt             roundTrip
	hooks           hookQueue

	life    context.Context // of the background work
	end     context.CancelFunc
	closing chan struct{}
	wake    chan struct{} // the scheduler looks again
	idle    chan struct{} // the last job in the background has ended

	mu           sync.Mutex // guards what follows and the state of each hold
	closed       bool
	started      bool // scheduler and watch run
	events       eventState
	leases       schedule
	jobs         int                      // running in the background
	loops        int                      // that run: scheduler and watch
	closeBy      time.Time                // all releases end by then, or zero
	shortestWait time.Duration            // the shortest from a scheduling to what is due, since the last tick
	wakeAt       time.Duration            // when the scheduler wakes by itself
	partlyLost   map[*leaseState]struct{} // sets that lost a name, and still have the others
	waiters      map[string]*waiter
	spareWaiters *waiter // to be used again

	renewedAllAt time.Duration // when all leases were made due at once, or zero
	reconnects   throttle      // each makes all leases due
}

// flow says whether the store's events flow.
type eventState uint8

const (
	eventsUnknown eventState = iota
	eventsFlowing
	eventsStopped
)

// New returns a Client on a store. It does no I/O. The options are the defaults
// of all its locks. With a nil store, or a nil pointer as one, each call of the Client
// returns ErrInvalid.
func New(store driver.Store, options ...Option) *Client {
	if v := reflect.ValueOf(store); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		store = noStore{}
	}
	life, end := context.WithCancel(context.Background())
	return &Client{
		store:           store,
		defaults:        clientDefaults(options),
		id:              identity(),
		epoch:           time.Now(),
		suspended:       suspended,
		suspendedBefore: sleptBefore(),
		life:            life,
		end:             end,
		closing:         make(chan struct{}),
		idle:            make(chan struct{}, 1),
		wake:            make(chan struct{}, 1),
		partlyLost:      make(map[*leaseState]struct{}),
		waiters:         make(map[string]*waiter),
	}
}

// now is the time since the client was made, that of a suspended machine
// included, as far as look has noticed it. Deadlines are kept in it.
func (c *Client) now() time.Duration {
	return time.Since(c.epoch) + time.Duration(c.suspendedFor.Load())
}

// look is now, and notices whether the machine was suspended: where a deadline
// begins, and where it is checked.
func (c *Client) checkClock() time.Duration {
	// Two clocks are never read at once: what differs by less was no suspension.
	const noise = time.Millisecond
	apart, strayed := c.wallClockJumped()
	if !strayed {
		return c.now()
	}
	asleep := int64(c.suspended() - c.suspendedBefore)
	for known := c.suspendedFor.Load(); time.Duration(asleep-known) >= noise; known = c.suspendedFor.Load() {
		if c.suspendedFor.CompareAndSwap(known, asleep) {
			break
		}
	}
	c.wallOffset.Store(apart) // last: until then whoever looks asks the kernel as well
	return c.now()
}

// strayed reports whether the wall clock has left the monotonic one since look last
// asked the kernel: the machine was suspended, or the clock set. To ask which of these
// takes ten times as long, and this is part of each lock.
func (c *Client) wallClockJumped() (apart int64, strayed bool) {
	const noise = 300 * time.Microsecond
	now := time.Now()
	apart = now.UnixNano() - int64(now.Sub(c.epoch))
	d := time.Duration(apart - c.wallOffset.Load())
	return apart, d <= -noise || noise <= d
}

// sleptBefore is what suspended returns now, of a few readings the one that no
// preemption has spoilt.
func sleptBefore() time.Duration {
	return max(suspended(), suspended(), suspended())
}

// start begins the scheduler and the watch. The caller holds c.mu.
func (c *Client) start() {
	if c.started {
		return
	}
	c.started = true
	c.wakeAt, c.shortestWait = never, never
	c.loop(c.runRenewer)
	c.loop(c.watch)
}

// loop runs f until the client has ended. The caller holds c.mu.
func (c *Client) loop(f func()) {
	c.loops++
	go func() {
		f()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.loops--
		c.notifyIdle()
	}()
}

// background runs f, which ends soon after its context, and lets Close wait for
// it. After Close it does nothing, and returns false: what f would have cleaned up
// expires.
func (c *Client) background(f func(ctx context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return false
	}
	c.jobs++
	go func() {
		defer c.jobDone()
		f(c.life)
	}()
	return true
}

// engage lets Close wait for the caller, who calls jobDone soon after closing is
// closed. It returns false after Close.
func (c *Client) beginJob() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.jobs++
	return true
}

func (c *Client) jobDone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs--
	c.notifyIdle()
}

// tellIdle lets Close look again. The caller holds c.mu.
func (c *Client) notifyIdle() {
	if c.closed {
		select {
		case c.idle <- struct{}{}:
		default:
		}
	}
}

// Close gives back what is still held, ends waiting calls with ErrClosed, stops
// renewal and lets clean-up in the background end. As a rule it returns at once. It takes
// seven operation timeouts of the Client at most, however many leases there are, and four
// if the store fails to release one; leases that could not be released by then expire by
// themselves. Leases end with ErrLost. The store and its connections stay
// open: they are their owner's. A second Close returns nil.
//
// Close may be called in a hook, which it then waits for in vain, for one timeout.
func (c *Client) Close() error {
	held := c.shut()
	if held == nil {
		return nil
	}
	err := c.releaseAll(held)
	c.finish()
	return err
}

// shut refuses further work and takes all leases from the scheduler. It returns
// nil if the client was closed before.
func (c *Client) shut() []*leaseState {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.closeBy = time.Now().Add(5 * c.defaults.timeout)
	close(c.closing)
	held := append(make([]*leaseState, 0, len(c.leases)), c.leases...)
	ended := make([]leaseEnd, 0, len(held))
	for _, h := range held {
		ended = append(ended, h.end(h.name, ReasonClosed, nil))
	}
	held = slices.AppendSeq(held, maps.Keys(c.partlyLost))
	clear(c.partlyLost)
	c.mu.Unlock()
	for _, e := range ended {
		e.notify()
	}
	return held
}

// releaseAll gives the holds back side by side, until closeBy. It has many workers: each
// lease on a server that does not answer keeps one of them until then.
func (c *Client) releaseAll(held []*leaseState) error {
	const workers = 512 // more would keep a busy machine from sending anything in time
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
					c.shortenClose()
				}
			}
		})
	}
	group.Wait()
	if err := first.Load(); err != nil {
		return fmt.Errorf("dibs: close: %d of %d leases not given back, they expire by themselves; the first: %w",
			failed.Load(), len(held), *err)
	}
	return nil
}

// giveBackInTime is giveBack, unless the time for Close is over.
func (c *Client) releaseInTime(h *leaseState) error {
	if c.releaseBy(h.timeout).After(time.Now()) {
		return c.releaseLease(h)
	}
	return &UnavailableError{Op: "unlock", Name: h.name, Cause: context.DeadlineExceeded, Refused: true}
}

// releaseBy returns when a release that begins now has to end.
func (c *Client) releaseBy(timeout time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.closed {
		return now.Add(timeout)
	}
	end := now.Add(min(timeout, 2*c.defaults.timeout))
	if c.closeBy.Before(end) {
		return c.closeBy
	}
	return end
}

// hurryClose leaves what is still to be released one operation timeout: the store has
// failed to release something. While it answers, Close takes longer.
func (c *Client) shortenClose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if soon := time.Now().Add(c.defaults.timeout); soon.Before(c.closeBy) {
		c.closeBy = soon
	}
}

// finish lets clean-up and hooks run for one operation timeout, and then ends everything.
// What does not end then is not waited for: it may be what called Close, in a hook of
// dibs or of the store's own client.
func (c *Client) finish() {
	grace, cancel := context.WithTimeout(context.Background(), c.defaults.timeout)
	defer cancel()
	c.waitWhile(grace, func() bool { return c.jobs+len(c.waiters) > 0 })
	c.end()
	limit, cancel := context.WithTimeout(context.Background(), c.defaults.timeout)
	defer cancel()
	c.waitWhile(limit, func() bool { return c.jobs+len(c.waiters)+c.loops > 0 })
	c.hooks.wait(limit)
}

// rest waits until the client is not busy, or until ctx ends.
func (c *Client) waitWhile(ctx context.Context, busy func() bool) {
	for {
		c.mu.Lock()
		done := !busy()
		c.mu.Unlock()
		if done {
			return
		}
		select {
		case <-c.idle:
		case <-ctx.Done():
			return
		}
	}
}
