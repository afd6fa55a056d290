package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs"
)

// An owner is a peer with a dibs client.
type owner interface{ client() *dibs.Client }

// openClients opens a worker's clients. Each has its own connections, like a process in a service.
func openClients(o order) (clients []*dibs.Client, err error) {
	for range o.Clients {
		p, err := openPeer(o.Peer, newEndpoint(o.Addrs, o.TTL))
		if err != nil {
			return nil, err
		}
		clients = append(clients, p.(owner).client())
	}
	return clients, nil
}

// A holding contains a worker's leases.
type holding struct {
	order   order
	clients []*dibs.Client
	leases  []*dibs.Lease // Count for each client
	waiting sync.WaitGroup
	served  atomic.Int64
}

func (h *holding) name(client, lease int) string {
	return h.order.heldName(fmt.Sprintf("%d.%d.%d", h.order.Index, client, lease))
}

// A question asks a worker for its losses. With Serve, the worker first unlocks the names with
// waiters.
type question struct{ Serve bool }

// A lossReport is a worker's answer.
type lossReport struct {
	Lost    int
	Example string // the error of a lost lease
	Waiting int    // waiters not served
}

// stormPatience is a busy machine's time limit for any part of a job.
const stormPatience = 5 * time.Minute

// stormJob acquires leases and answers questions about them.
func stormJob(o order, _ peer, t link) error {
	h := &holding{order: o, leases: make([]*dibs.Lease, o.Clients*o.Count)}
	var err error
	if h.clients, err = openClients(o); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), stormPatience)
	defer cancel()
	err = concurrently(len(h.leases), func(i int) (err error) {
		client := i % len(h.clients)
		h.leases[i], err = acquire(ctx, h.clients[client].Mutex(h.name(client, i/len(h.clients))))
		return err
	})
	if err != nil {
		return err
	}
	if o.Waiters {
		h.queueWaiters()
	}
	if err := t.out.Encode(len(h.leases)); err != nil {
		return err
	}
	for {
		var q question
		if err := t.in.Decode(&q); err != nil {
			return err
		}
		report := h.losses()
		if q.Serve {
			report.Waiting = h.serve()
		}
		if err := t.out.Encode(report); err != nil {
			return err
		}
	}
}

// acquire acquires a lease. It tries again if the store does not answer: many acquisitions at once
// can overload it, and only the later part is measured.
func acquire(ctx context.Context, m *dibs.Mutex) (lease *dibs.Lease, err error) {
	for {
		lease, err = m.Lock(ctx)
		if !errors.Is(err, dibs.ErrUnavailable) || ctx.Err() != nil {
			return lease, err
		}
	}
}

func (h *holding) losses() (r lossReport) {
	for _, lease := range h.leases {
		err := lease.Err()
		if err == nil || errors.Is(err, dibs.ErrReleased) {
			continue
		}
		if r.Lost++; r.Lost == 1 {
			r.Example = err.Error()
		}
	}
	return r
}

// queueWaiters starts a waiter for each client, and returns when all are queued.
func (h *holding) queueWaiters() {
	var queued sync.WaitGroup
	queued.Add(len(h.clients))
	for i, c := range h.clients {
		once := sync.OnceFunc(queued.Done)
		hooks := dibs.Hooks{
			Queued:     func(context.Context, dibs.Queued) { once() },
			AcquireEnd: func(context.Context, dibs.AcquireEnd) { once() },
		}
		h.waiting.Go(func() {
			lease, err := c.Mutex(h.name((i+1)%len(h.clients), 0)).Lock(context.Background(), dibs.Observe(hooks))
			if err == nil {
				h.served.Add(1)
				_ = lease.Unlock() // only the service counts
			}
		})
	}
	queued.Wait()
}

// serveLimit is the time in which all waiters must be served.
const serveLimit = 30 * time.Second

// serve unlocks the names with waiters, and returns the number of waiters not served.
func (h *holding) serve() int {
	_ = concurrently(len(h.clients), func(i int) error {
		_ = h.leases[i].Unlock() // a lost lease is already counted
		return nil
	})
	done := make(chan struct{})
	go func() {
		h.waiting.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(serveLimit):
	}
	return len(h.clients) - int(h.served.Load())
}

// lost returns the number of leases lost by the workers, and the error of one lease.
func (c *workerGroup) lost() (n int, example string, err error) {
	reports, err := c.query(question{})
	for _, r := range reports {
		n += r.Lost
		if example == "" {
			example = r.Example
		}
	}
	return n, example, err
}

// serveAll lets the workers unlock, and records the waiters not served.
func (c *workerGroup) serveAll(f figures) error {
	reports, err := c.query(question{Serve: true})
	f["unserved"] = 0
	for _, r := range reports {
		f["unserved"] += float64(r.Waiting)
	}
	return err
}

func (c *workerGroup) query(q question) (reports []lossReport, err error) {
	if err := c.send(q); err != nil {
		return nil, err
	}
	for _, w := range c.workers {
		var r lossReport
		if err := w.receive(&r); err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	return reports, nil
}
