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

// A Storm is work that goes on while servers fail: workers take one of some names for
// themselves, hold it for a while and give it back, until Stop.
type Storm struct {
	Names   []string
	Workers int                               // for each store
	Pace    time.Duration                     // of one worker: from lock to lock, if there is time
	Hold    func(*rand.Rand) time.Duration    // for how long
	Name    func(*rand.Rand, []string) string // which one; the default is any
	Options []dibs.Option
	Seed    uint64
}

// A Weather is a storm under way.
type Weather struct {
	storm   Storm
	rec     *Recorder
	end     context.CancelFunc
	over    context.Context
	workers sync.WaitGroup
	clients []*dibs.Client
	entered atomic.Int64
}

// Start begins the storm, with one client on each store.
func (s Storm) Start(stores ...driver.Store) *Weather {
	if s.Name == nil {
		s.Name = func(r *rand.Rand, names []string) string { return names[r.IntN(len(names))] }
	}
	over, end := context.WithCancel(context.Background())
	w := &Weather{storm: s, rec: NewRecorder(), over: over, end: end}
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

// Now returns this moment of the history.
func (w *Weather) Now() Moment { return w.rec.Now() }

// Entered returns how often a worker has got its name, so far.
func (w *Weather) Entered() int64 { return w.entered.Load() }

// Stop ends the storm and returns its history. What waited for a name then is in it,
// with an error.
func (w *Weather) Stop() History {
	w.end()
	w.workers.Wait()
	for _, c := range w.clients {
		op := w.rec.Call(Op{Verb: Close})
		w.rec.Return(op, c.Close())
	}
	return w.rec.History()
}

func (w *Weather) work(c *dibs.Client, random *rand.Rand) {
	for w.over.Err() == nil {
		next := time.Now().Add(w.storm.Pace)
		w.once(c, w.storm.Name(random, w.storm.Names), w.storm.Hold(random))
		w.rest(time.Until(next))
	}
}

// rest sleeps, unless the storm ends before.
func (w *Weather) rest(d time.Duration) {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.over.Done():
	}
}

// once takes a name, asks all the while whether it is held, and gives it back.
func (w *Weather) once(c *dibs.Client, name string, hold time.Duration) {
	take := w.rec.Call(Op{Verb: Take, Names: []string{name}, Weight: 1, Limit: 1})
	lease, err := c.Mutex(name).Lock(w.over)
	if err != nil {
		w.rec.Return(take, err)
		return
	}
	take.Token, take.Fences = lease.Token(), []uint64{lease.Fence()}
	w.rec.Return(take, nil)
	w.entered.Add(1)
	const every = 5 * time.Millisecond
	for end := time.Now().Add(hold); ; {
		probe := w.rec.Call(Op{Verb: Probe, Of: take.ID, Names: take.Names, Token: take.Token})
		err := lease.Err()
		w.rec.Return(probe, err)
		left := time.Until(end)
		if err != nil || left <= 0 || w.over.Err() != nil {
			break
		}
		w.rest(min(every, left))
	}
	free := w.rec.Call(Op{Verb: Free, Of: take.ID, Names: take.Names, Token: take.Token})
	w.rec.Return(free, lease.Unlock())
}
