package main

import (
	"context"

	"github.com/dibslock/dibs"
)

// primitives measures the other primitives without contention.
func primitives(b *fixture, c config) ([]*table, error) {
	t := &table{
		name: "primitives",
		about: []string{
			"G goroutines of one process acquire and release without contention. One pair is one of each.",
			"mutex: names of their own. readers: all read one name. permits: each has 1 of 1,000 of one name. multi-lock: 3 names of their own.",
			"baseline: as in the table uncontended, on names of their own.",
		},
		load: "G",
		columns: []column{
			{"pairs/s", 0, median}, {"ratio", 2, median}, {"p50 µs", 0, median}, {"p99 µs", 0, median},
			{"wire", 2, median}, {"executed", 2, median}, {"server µs", 1, median},
		},
	}
	return t.pairs(b, c, "baseline", "dibs", "dibs readers", "dibs permits", "dibs multi-lock")
}

// A primitivePeer is a dibsPeer for a primitive other than a mutex.
type primitivePeer struct {
	dibsPeer
	acquire func(ctx context.Context, name string) (*dibs.Lease, error)
}

func (k primitivePeer) Lock(ctx context.Context, name string) (func() error, error) {
	lease, err := k.acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	return lease.Unlock, nil
}

func openPrimitive(acquire func(context.Context, *dibs.Client, string) (*dibs.Lease, error)) opener {
	return func(s endpoint) (peer, error) {
		locks := dibs.New(s.store(), dibs.TTL(s.ttl))
		return primitivePeer{dibsPeer{locks}, func(ctx context.Context, name string) (*dibs.Lease, error) {
			return acquire(ctx, locks, name)
		}}, nil
	}
}

const shared = "shared" // by all goroutines

func rlock(ctx context.Context, c *dibs.Client, _ string) (*dibs.Lease, error) {
	return c.RWMutex(shared).RLock(ctx)
}

func permit(ctx context.Context, c *dibs.Client, _ string) (*dibs.Lease, error) {
	return c.Semaphore(shared, 1000).Acquire(ctx, 1)
}

func multiLock(ctx context.Context, c *dibs.Client, name string) (*dibs.Lease, error) {
	return c.All(name, name+":2", name+":3").Lock(ctx)
}
