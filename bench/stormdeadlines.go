package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

const (
	deadlineLeases = 200_000
	expiring       = 1_000
	expiringTTL    = 2 * time.Second
	maxRounds      = 5
)

// deadlines measures how late leases end while all others are renewed.
func deadlines(_ *fixture, c config) ([]*table, error) {
	rounds := max(int(maxRounds*c.stormTime), 1)
	t := &table{
		name: "storm-deadlines",
		about: []string{
			fmt.Sprintf("A client holds 200,000 leases, and %d more that are not renewed, with a TTL of %v and a safety margin of 40 ms. While these expire, the client reconnects each 100 ms. The store is in memory, and renews at once. This is done %d times.", expiring, expiringTTL, rounds),
			"p50 ms, max ms: from the deadline until the context ends. control: the same of bare timers in the same process. TTL: of the 200,000.",
		},
		load:    "TTL",
		columns: []column{{"leases", 0, median}, {"p50 ms", 2, median}, {"max ms", 1, maximum}, {"control ms", 1, maximum}, {"lost", 0, maximum}},
		bars:    []bar{atMost("max ms", 40), atMost("lost", 0)},
		server:  "no server",
	}
	for _, ttl := range []time.Duration{expiringTTL, 30 * time.Second} {
		progress("%s, TTL %v", t.name, ttl)
		f, err := measureDeadlines(ttl, max(int(deadlineLeases*c.stormSize), 1), rounds)
		if err != nil {
			return nil, err
		}
		t.row(ttl.String(), ours).runs = []figures{f}
	}
	return []*table{t}, nil
}

func measureDeadlines(ttl time.Duration, leases, rounds int) (figures, error) {
	w, err := start(order{Job: "deadlines", Peer: "dibs@memory", Addrs: []string{""}, TTL: ttl, Count: leases, Rounds: rounds})
	group := &workerGroup{}
	if w != nil {
		group.workers = []*worker{w}
	}
	defer group.stop()
	if err != nil {
		return nil, err
	}
	var h hello
	if err := w.receive(&h); err != nil {
		return nil, err
	}
	var r deadlineReport
	if err := w.receive(&r); err != nil {
		return nil, err
	}
	return figures{"leases": float64(leases), "p50 ms": median(r.Late), "max ms": maximum(r.Late), "control ms": maximum(r.Control), "lost": float64(r.Lost)}, nil
}

// openMemoryDibs opens dibs in memory.
func openMemoryDibs(s endpoint) (peer, error) {
	return dibsPeer{dibs.New(memstore.New(), dibs.TTL(s.ttl))}, nil
}

// An instantStore is a store in memory that renews each lease at once, so only the client's work
// counts. It reconnects at the test's request.
type instantStore struct {
	*driver.Full
	events chan driver.EventKind
}

// Extend implements driver.Store.
func (s instantStore) Extend(_ context.Context, requests []driver.ExtendRequest) []error {
	return make([]error, len(requests))
}

// Watch implements driver.Store.
func (s instantStore) Watch(ctx context.Context, _ string, busy func() bool, on func(driver.Event)) error {
	on(driver.Event{Kind: driver.EventConnected})
	for {
		select {
		case kind := <-s.events:
			on(driver.Event{Kind: kind})
		case <-ctx.Done():
			return nil
		}
	}
}

func (s instantStore) reconnect() {
	s.events <- driver.EventDisconnected
	s.events <- driver.EventConnected
}

// A deadlineReport is how late contexts and timers were, in ms.
type deadlineReport struct {
	Late    []float64
	Control []float64
	Lost    int // among the renewed leases
}

func deadlinesJob(o order, _ peer, t link) error {
	store := instantStore{driver.Complete(memstore.New()), make(chan driver.EventKind)}
	locks := dibs.New(store, dibs.TTL(o.TTL), dibs.Wait(time.Minute))
	kept := make([]*dibs.Lease, o.Count)
	err := concurrently(o.Count, func(i int) (err error) {
		kept[i], err = locks.Mutex(fmt.Sprint("kept", i)).Lock(context.Background())
		return err
	})
	if err != nil {
		return err
	}
	var r deadlineReport
	for round := range o.Rounds {
		if err := r.measure(locks, store, round); err != nil {
			return err
		}
	}
	for _, lease := range kept {
		if lease.Err() != nil {
			r.Lost++
		}
	}
	return t.out.Encode(r)
}

// measure acquires leases without renewal, for a second, and reconnects while they expire.
func (r *deadlineReport) measure(locks *dibs.Client, store instantStore, round int) error {
	const apart = time.Second / expiring
	const between = 100 * time.Millisecond // from one reconnection to the next
	var running sync.WaitGroup
	var mu sync.Mutex
	begin := time.Now()
	for i := range expiring {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * apart)))
		lease, err := locks.Mutex(fmt.Sprintf("expiring%d.%d", round, i)).Lock(context.Background(), dibs.TTL(expiringTTL), dibs.NoRenew())
		if err != nil {
			return err
		}
		deadline := lease.Deadline()
		running.Go(func() {
			<-lease.Context().Done()
			late := millis(time.Since(deadline))
			mu.Lock()
			defer mu.Unlock()
			r.Late = append(r.Late, late)
		})
		running.Go(func() {
			time.Sleep(time.Until(deadline))
			late := millis(time.Since(deadline))
			mu.Lock()
			defer mu.Unlock()
			r.Control = append(r.Control, late)
		})
	}
	for at := begin.Add(expiringTTL); at.Before(begin.Add(expiringTTL + time.Second)); at = at.Add(between) {
		time.Sleep(time.Until(at))
		store.reconnect()
	}
	running.Wait()
	return nil
}
