package history

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// A Workload is work that runs while servers fail. Each worker locks a name, holds it for a while
// and releases it, until Stop.
type Workload struct {
	Names    []string
	Workers  int                               // for each store
	Interval time.Duration                     // for each worker: from a lock to the next, if there is time
	Hold     func(*rand.Rand) time.Duration    // how long a lease is held
	Name     func(*rand.Rand, []string) string // chooses a name; the default is uniform
	Options  []dibs.Option
	Seed     uint64
}

// An ActiveWorkload is a running workload.
type ActiveWorkload struct {
	workload Workload
	rec      *Recorder
	cancel   context.CancelFunc
	ctx      context.Context
	workers  sync.WaitGroup
	clients  []*dibs.Client
	acquired atomic.Int64
}

// Start starts the workload, with a client on each store.
func (s Workload) Start(stores ...driver.Store) *ActiveWorkload {
	if s.Name == nil {
		s.Name = func(r *rand.Rand, names []string) string { return names[r.IntN(len(names))] }
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &ActiveWorkload{workload: s, rec: NewRecorder(), ctx: ctx, cancel: cancel}
	for i, store := range stores {
		c := dibs.New(store, s.Options...)
		w.clients = append(w.clients, c)
		for j := range s.Workers {
			random := rand.New(rand.NewPCG(s.Seed, uint64(i*s.Workers+j)))
			w.workers.Go(func() { w.work(c, random) })
		}
	}
	return w
}

// Now returns the current moment in the history.
func (w *ActiveWorkload) Now() Moment { return w.rec.Now() }

// Acquired returns how often workers have acquired a name so far.
func (w *ActiveWorkload) Acquired() int64 { return w.acquired.Load() }

// Stop ends the workload and returns its history. Waiting Acquires are in it with an error.
func (w *ActiveWorkload) Stop() History {
	w.cancel()
	w.workers.Wait()
	for _, c := range w.clients {
		op := w.rec.Call(Op{Verb: Close})
		w.rec.Return(op, c.Close())
	}
	return w.rec.History()
}

func (w *ActiveWorkload) work(c *dibs.Client, random *rand.Rand) {
	for w.ctx.Err() == nil {
		next := time.Now().Add(w.workload.Interval)
		w.lockOnce(c, w.workload.Name(random, w.workload.Names), w.workload.Hold(random))
		w.sleep(time.Until(next))
	}
}

// sleep sleeps for d, or until the workload ends.
func (w *ActiveWorkload) sleep(d time.Duration) {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.ctx.Done():
	}
}

// lockOnce locks a name, checks its lease all the while, and unlocks it.
func (w *ActiveWorkload) lockOnce(c *dibs.Client, name string, hold time.Duration) {
	take := w.rec.Call(Op{Verb: Acquire, Names: []string{name}, Weight: 1, Limit: 1})
	lease, err := c.Mutex(name).Lock(w.ctx)
	if err != nil {
		w.rec.Return(take, err)
		return
	}
	take.Token, take.Fences = lease.Token(), []uint64{lease.Fence()}
	w.rec.Return(take, nil)
	w.acquired.Add(1)
	const every = 5 * time.Millisecond
	for end := time.Now().Add(hold); ; {
		probe := w.rec.Call(Op{Verb: Probe, Of: take.ID, Names: take.Names, Token: take.Token})
		err := lease.Err()
		w.rec.Return(probe, err)
		left := time.Until(end)
		if err != nil || left <= 0 || w.ctx.Err() != nil {
			break
		}
		w.sleep(min(every, left))
	}
	free := w.rec.Call(Op{Verb: Release, Of: take.ID, Names: take.Names, Token: take.Token})
	w.rec.Return(free, lease.Unlock())
}
