package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// Scene 3. All workers acquire the same lock repeatedly. A release grants it to the first
// waiter in the same step.

// A turnTimes describes a lease on the lock. Times are from the machine's clock in ns, which all
// its processes share.
type turnTimes struct {
	Worker                        int
	Ticket                        uint64 // the queue entry's ticket; zero: did not queue
	Fence                         uint64 // the lease's fence
	Requested, Acquired, Released int64
}

type handoffResult struct {
	count        int
	median, p99  time.Duration // from the Unlock call to the next Lock's return
	longest      time.Duration // wait
	outOfOrder   int           // granted after a later ticket
	most, fewest int           // a worker's leases
}

func sceneHandoffs(ctx context.Context, c *teamSet, size demoSize, out *printer, seen *outcome) error {
	out.scene(3, "Hand-off", "%d workers queue for one lock repeatedly", size.Teams*size.Workers)
	out.columns("hand-offs", "median", "p99", "longest wait")
	reports, err := c.runAll(ctx, job{Task: "queue", Workers: size.Workers, For: size.QueueTime})
	if err != nil {
		return err
	}
	seen.handoffs = summarize(reports, size.Workers)
	h := seen.handoffs
	out.row("with dibs", count(int64(h.count)), span(h.median), span(h.p99), span(h.longest))
	out.value("grants in queue order", yes(h.outOfOrder == 0))
	out.value("leases of one worker, most and fewest", pair(h.most, h.fewest))
	return nil
}

// summarize evaluates the grants' order. Fences give the order in which locks were granted, and
// tickets the order in which they were queued. Both come from the store, so no clock is needed.
func summarize(reports []report, workers int) handoffResult {
	var turns []turnTimes
	for i, r := range reports {
		for _, t := range r.Turns {
			t.Worker += i * workers
			turns = append(turns, t)
		}
	}
	slices.SortFunc(turns, func(a, b turnTimes) int { return cmp.Compare(a.Fence, b.Fence) })
	h := handoffResult{}
	h.measure(turns)
	h.countTurns(turns, len(reports)*workers)
	return h
}

func (h *handoffResult) measure(turns []turnTimes) {
	var took []time.Duration
	var last turnTimes
	var latest uint64 // the largest granted ticket
	for _, t := range turns {
		h.longest = max(h.longest, time.Duration(t.Acquired-t.Requested))
		if t.Ticket != 0 {
			if t.Ticket < latest {
				h.outOfOrder++
			}
			latest = max(latest, t.Ticket)
			if last.Fence != 0 && t.Requested < last.Released {
				took = append(took, time.Duration(t.Acquired-last.Released))
			}
		}
		last = t
	}
	h.count = len(took)
	if h.count > 0 {
		slices.Sort(took)
		h.median, h.p99 = took[h.count/2], took[h.count*99/100]
	}
}

func (h *handoffResult) countTurns(turns []turnTimes, workers int) {
	of := make([]int, workers)
	for _, t := range turns {
		of[t.Worker]++
	}
	h.most, h.fewest = slices.Max(of), slices.Min(of)
}

// queue is a team's task: each worker acquires and releases the lock until the time is over.
func queue(ctx context.Context, l *local, j job) (r report, err error) {
	recorder := newTicketRecorder(l.data.locks())
	locks := newClient(recorder)
	defer func() { err = errors.Join(err, locks.Close()) }()
	mutex := locks.Mutex("queue")
	if err := recorder.waitConnected(ctx, mutex); err != nil {
		return r, err
	}
	var mu sync.Mutex // guards r.Turns
	end := time.Now().Add(j.For)
	err = concurrently(ctx, j.Workers, func(ctx context.Context, worker int) error {
		for time.Now().Before(end) {
			t, err := runTurn(ctx, mutex)
			if err != nil {
				return err
			}
			t.turnTimes.Worker, t.turnTimes.Ticket = worker, recorder.ticket(string(t.token))
			mu.Lock()
			r.Turns = append(r.Turns, t.turnTimes)
			mu.Unlock()
		}
		return nil
	})
	return r, err
}

type tokenTurn struct {
	turnTimes
	token dibs.Token
}

func runTurn(ctx context.Context, mutex *dibs.Mutex) (tokenTurn, error) {
	t := tokenTurn{}
	t.Requested = time.Now().UnixNano()
	lease, err := mutex.Lock(ctx)
	if err != nil {
		return t, err
	}
	t.Acquired = time.Now().UnixNano()
	t.token, t.Fence = lease.Token(), lease.Fence()
	think()
	t.Released = time.Now().UnixNano()
	return t, lease.Unlock()
}

// A ticketRecorder is a store that records the queue entries' tickets.
type ticketRecorder struct {
	*driver.Full
	once      sync.Once
	connected chan struct{} // closed when the store sends events

	mu      sync.Mutex
	tickets map[string]uint64 // by token
}

func newTicketRecorder(s driver.Store) *ticketRecorder {
	return &ticketRecorder{Full: driver.Complete(s), connected: make(chan struct{}), tickets: make(map[string]uint64)}
}

// waitConnected waits until the store sends events to this client. Before that, a hand-off can skip
// its waiters once.
func (d *ticketRecorder) waitConnected(ctx context.Context, mutex *dibs.Mutex) error {
	lease, err := mutex.Lock(ctx)
	if err != nil {
		return err
	}
	if err := lease.Unlock(); err != nil {
		return err
	}
	select {
	case <-d.connected:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Watch implements driver.Store.
func (d *ticketRecorder) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	return d.Store.Watch(ctx, client, busy, func(e driver.Event) {
		if e.Kind == driver.EventConnected {
			d.once.Do(func() { close(d.connected) })
		}
		on(e)
	})
}

// Acquire implements driver.Store.
func (d *ticketRecorder) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	a, err := d.Store.Acquire(ctx, r)
	if a.Ticket != 0 {
		d.mu.Lock()
		d.tickets[r.Token] = a.Ticket
		d.mu.Unlock()
	}
	return a, err
}

func (d *ticketRecorder) ticket(token string) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tickets[token]
}
