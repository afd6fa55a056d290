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

// Scene 3. All workers want the same lock, all the time. A release hands it to
// the first in line, in the same step.

// A turn is one holding of the lock. The times are those of the machine's clock,
// in ns, which all its processes share.
type turn struct {
	Worker                        int
	Ticket                        uint64 // the store's number of the place in the queue, zero without one
	Fence                         uint64 // the store's number of the holding
	Requested, Acquired, Released int64
}

type handoffs struct {
	count        int
	median, p99  time.Duration // from the call of Unlock to the return of the next Lock
	longest      time.Duration // wait
	outOfTurn    int           // served before one who queued earlier
	most, fewest int           // turns of one worker
}

func sceneHandoffs(ctx context.Context, c *teamSet, size demoSize, out *printer, seen *outcome) error {
	out.scene(3, "Hand-off", "%d workers queue for one lock, again and again", size.Teams*size.Workers)
	out.columns("hand-offs", "median", "p99", "longest wait")
	reports, err := c.all(ctx, job{Part: "queue", Workers: size.Workers, For: size.Queueing})
	if err != nil {
		return err
	}
	seen.handoffs = summarize(reports, size.Workers)
	h := seen.handoffs
	out.row("with dibs", count(int64(h.count)), span(h.median), span(h.p99), span(h.longest))
	out.value("order of service = order of queueing", yes(h.outOfTurn == 0))
	out.value("turns of a worker, most and fewest", pair(h.most, h.fewest))
	return nil
}

// summarize finds out who was served when. Fences tell the order of service, tickets
// that of queueing: both are the store's, so no clock is needed.
func summarize(reports []report, workers int) handoffs {
	var turns []turn
	for i, r := range reports {
		for _, t := range r.Turns {
			t.Worker += i * workers
			turns = append(turns, t)
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.Fence, b.Fence) })
	h := handoffs{}
	h.measure(turns)
	h.countTurns(turns, len(reports)*workers)
	return h
}

func (h *handoffs) measure(turns []turn) {
	var took []time.Duration
	var last turn
	var latest uint64 // ticket served
	for _, t := range turns {
		h.longest = max(h.longest, time.Duration(t.Acquired-t.Requested))
		if t.Ticket != 0 {
			if t.Ticket < latest {
				h.outOfTurn++
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

func (h *handoffs) countTurns(turns []turn, workers int) {
	of := make([]int, workers)
	for _, t := range turns {
		of[t.Worker]++
	}
	h.most, h.fewest = slices.Max(of), slices.Min(of)
}

// queue is what a team does: each of its workers takes the lock, again and again.
func queue(ctx context.Context, l *local, j job) (r report, err error) {
	desk := newTicketRecorder(l.data.locks())
	locks := newClient(desk)
	defer func() { err = errors.Join(err, locks.Close()) }()
	mutex := locks.Mutex("queue")
	if err := desk.waitConnected(ctx, mutex); err != nil {
		return r, err
	}
	var mu sync.Mutex // of r.Turns
	end := time.Now().Add(j.For)
	err = concurrently(ctx, j.Workers, func(ctx context.Context, worker int) error {
		for time.Now().Before(end) {
			t, err := takeTurn(ctx, mutex)
			if err != nil {
				return err
			}
			t.turn.Worker, t.turn.Ticket = worker, desk.ticket(t.token)
			mu.Lock()
			r.Turns = append(r.Turns, t.turn)
			mu.Unlock()
		}
		return nil
	})
	return r, err
}

type takenTurn struct {
	turn
	token string
}

func takeTurn(ctx context.Context, mutex *dibs.Mutex) (takenTurn, error) {
	t := takenTurn{}
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

// A ticketRecorder is a store that notes down the tickets it gives out.
type ticketRecorder struct {
	driver.Store
	once      sync.Once
	connected chan struct{} // events flow

	mu      sync.Mutex
	tickets map[string]uint64 // by token
}

func newTicketRecorder(s driver.Store) *ticketRecorder {
	return &ticketRecorder{Store: s, connected: make(chan struct{}), tickets: make(map[string]uint64)}
}

// waitConnected waits until the store's events reach us: whoever cannot hear its call yet
// is passed over once.
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

// Watch implements dibs.Store.
func (d *ticketRecorder) Watch(ctx context.Context, client string, on func(driver.Event)) error {
	return d.Store.Watch(ctx, client, func(e driver.Event) {
		if e.Kind == driver.EventConnected {
			d.once.Do(func() { close(d.connected) })
		}
		on(e)
	})
}

// Acquire implements dibs.Store.
func (d *ticketRecorder) Acquire(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
	a, err := d.Store.Acquire(ctx, c)
	if a.Ticket != 0 {
		d.mu.Lock()
		d.tickets[c.Token] = a.Ticket
		d.mu.Unlock()
	}
	return a, err
}

func (d *ticketRecorder) ticket(token string) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tickets[token]
}
