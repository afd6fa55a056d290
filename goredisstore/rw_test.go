//go:build linux

package goredisstore_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// durations collects durations from many goroutines.
type durations struct {
	mu  sync.Mutex
	all []time.Duration
}

func (y *durations) add(d time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.all = append(y.all, d)
}

// A hundred readers that lock again at once should not starve three writers, nor should the writers
// starve the readers. Not parallel, because throughput matters.
func TestReadersAndWriters(t *testing.T) {
	const readers, writers, clients = 100, 3, 5
	lasts := pick(2*time.Second, 10*time.Second)
	b := setUp(t)
	var locks []*dibs.Client
	for range clients {
		locks = append(locks, b.newClient(b.server.Addr(), patient(), dibs.TTL(generous)))
	}
	var (
		reading, writing, overlaps, most atomic.Int64
		holds, writes                    durations // from the grant to the release
		readWaits, writeWaits            durations
		workers                          sync.WaitGroup
	)
	b.begin()
	start := time.Now()
	ctx := deadline(t, lasts+generous)
	for i := range readers {
		workers.Go(func() {
			lock := locks[i%clients].RWMutex(job)
			for time.Since(start) < lasts && ctx.Err() == nil {
				var begun, called time.Time
				called = time.Now()
				// It holds from the time of the release before it, if known.
				hooks := dibs.Hooks{AcquireEnd: func(_ context.Context, a dibs.AcquireEnd) { begun = time.Now().Add(-a.Handoff) }}
				err := lock.Reader().Do(ctx, func(context.Context) error {
					readWaits.add(time.Since(called))
					n := reading.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					exclusive := writing.Load() == 0
					time.Sleep(rand.N(5 * time.Millisecond)) // work
					exclusive = exclusive && writing.Load() == 0
					reading.Add(-1)
					if !exclusive {
						overlaps.Add(1)
					}
					return nil
				}, dibs.Observe(hooks))
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				holds.add(time.Since(begun))
			}
		})
	}
	for i := range writers {
		workers.Go(func() {
			lock := locks[i%clients].RWMutex(job)
			for time.Since(start) < lasts && ctx.Err() == nil {
				var begun time.Time
				called := time.Now()
				hooks := dibs.Hooks{AcquireEnd: func(_ context.Context, a dibs.AcquireEnd) { begun = time.Now().Add(-a.Handoff) }}
				err := lock.Writer().Do(ctx, func(context.Context) error {
					writeWaits.add(time.Since(called))
					exclusive := writing.Add(1) == 1 && reading.Load() == 0
					time.Sleep(100 * time.Microsecond) // work
					exclusive = writing.Load() == 1 && reading.Load() == 0 && exclusive
					writing.Add(-1)
					if !exclusive {
						overlaps.Add(1)
					}
					return nil
				}, dibs.Observe(hooks))
				if err != nil {
					t.Errorf("write: %v", err)
					return
				}
				writes.add(time.Since(begun))
			}
		})
	}
	workers.Wait()
	t.Logf("FIGURE readers and writers: %d reads, up to %d at once, %d writes, %d overlaps (limit 0)", len(readWaits.all), most.Load(), len(writeWaits.all), overlaps.Load())
	t.Logf("FIGURE readers and writers: waits of readers: mean %v, longest %v; of writers: mean %v, longest %v; holds of readers: mean %v, longest %v",
		round(mean(readWaits.all)), round(longest(readWaits.all)), round(mean(writeWaits.all)), round(longest(writeWaits.all)), round(mean(holds.all)), round(longest(holds.all)))
	if overlaps.Load() != 0 {
		t.Errorf("%d overlaps", overlaps.Load())
	}
	if most.Load() < 2 || len(writeWaits.all) < writers {
		t.Errorf("%d readers at once, %d writes: nothing was shared", most.Load(), len(writeWaits.all))
	}
	// In FIFO order at most two other writers are before a writer, with readers before each of the
	// three. A writer works for 0.1 ms; a longer hold is due to the machine.
	wait, read, write := longest(writeWaits.all), longest(holds.all), longest(writes.all)
	t.Logf("FIGURE readers and writers: longest wait of a writer %.2f times the longest hold of a reader (limit 3), %.2f times without the longest hold of a writer, %v, twice",
		wait.Seconds()/read.Seconds(), max(wait-2*write, 0).Seconds()/read.Seconds(), round(write))
	b.within("readers and writers: longest wait of a writer", wait, 3*read)
	b.wantNoKeys()
}

// A writer waits for the readers before it, and for no later ones. Adjacent readers in
// the queue enter together.
func TestReadersBehindAWriter(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	locks, rival := b.newClient(b.server.Addr()), b.newClient(b.server.Addr())
	for range rounds {
		first := b.acquire(locks, "read "+job)
		writer := b.enqueueFor(rival, "write "+job)
		var behind []<-chan entry
		for range 3 {
			behind = append(behind, b.enqueueFor(locks, "read "+job))
		}
		last := b.enqueueFor(locks, "write "+job)
		b.unlock(first)
		w := b.awaitEntry(writer)
		if s := b.inspect(locks, job); s.Holding != 1 || s.Waiting != 4 {
			t.Fatalf("%d hold, %d wait, want the writer and four", s.Holding, s.Waiting)
		}
		b.unlock(w.lease)
		fence := w.lease.Fence()
		var entries []entry
		for _, r := range behind {
			e := b.awaitEntry(r) // while the readers before it hold
			if e.lease.Fence() <= fence {
				t.Errorf("fence %d after %d", e.lease.Fence(), fence)
			}
			fence = e.lease.Fence()
			entries = append(entries, e)
		}
		for _, e := range entries {
			select {
			case e := <-last:
				t.Fatalf("the last writer entered beside readers: %+v", e)
			default:
			}
			b.unlock(e.lease)
		}
		b.unlock(b.awaitEntry(last).lease)
		b.wantNoKeys()
	}
}

// The lease of a reader that dies expires, while the other readers' leases are renewed.
func TestReaderIsKilled(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	renewed := make(chan struct{}, 100)
	locks, observer := b.newClient(b.server.Addr(), renewals(renewed)), b.newClient(b.server.Addr())
	for i := range 2 {
		l := b.acquire(locks, "read "+job)
		dead := b.spawn(childConfig{Role: "leases", TTL: ttl})
		dead.acquire("r", "read "+job)
		if i > 0 {
			dead.expect("renewed")
		}
		if s := b.inspect(observer, job); s.Holding != 2 {
			t.Fatalf("%d hold, want two", s.Holding)
		}
		b.begin()
		killed := time.Now()
		dead.kill()
		for len(renewed) > 0 {
			<-renewed
		}
		b.eventually("the lease of the dead reader has expired", func() bool { return b.inspect(observer, job).Holding == 1 })
		b.within("reader killed: its lease expires after", time.Since(killed), ttl+20*time.Millisecond)
		if err := l.TryUpgrade(t.Context()); err != nil {
			t.Errorf("upgrade of the remaining reader: %v", err)
		}
		b.await("the other lease is renewed", renewed)
		if s := b.inspect(observer, job); s.Holding != 1 || s.Holders[0].Token != l.Token() || !s.Holders[0].Exclusive {
			t.Errorf("%+v, want the exclusive holder %s", s, l.Token())
		}
		b.unlock(l)
		b.wantNoKeys()
	}
}

// A writer behind a dead reader enters when this reader's lease expires, if there are no others.
func TestWriterBehindADeadReader(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	locks, rival := b.newClient(b.server.Addr()), b.newClient(b.server.Addr())
	l := b.acquire(locks, "read "+job)
	dead := b.spawn(childConfig{Role: "leases", TTL: ttl})
	dead.acquire("r", "read "+job)
	writer := b.enqueueFor(rival, "write "+job)
	b.begin()
	killed := time.Now()
	dead.kill()
	b.unlock(l)
	e := b.awaitEntry(writer)
	b.within("writer behind a dead reader: entry after the kill", e.at.Sub(killed), ttl+20*time.Millisecond)
	b.unlock(e.lease)
	b.wantNoKeys()
}

// A release delivered late must grant leases that last at least until the deadlines assumed by
// the new holders, in each mode.
func TestLateReleaseGrants(t *testing.T) {
	t.Parallel()
	for _, what := range []struct{ holds, waits, behind string }{
		{"write job", "read job", "write job"},
		{"write job", "permits job 2 3", "write job"},
		{"read job", "write job", "read job"},
		{"permits job 3 3", "permits job 2 3", "write job"},
	} {
		t.Run(what.holds+", "+what.waits, func(t *testing.T) {
			t.Parallel()
			b := setUp(t)
			proxy := b.proxy()
			// With this timeout the release is not void when it arrives.
			holder, locks, rival := b.newClient(proxy.Addr(), dibs.TTL(20*time.Second), dibs.Timeout(4*ttl)), b.newClient(b.server.Addr()), b.newClient(b.server.Addr())
			b.warm(rival)
			l := b.acquire(holder, what.holds)
			held, deliver := proxy.HoldNextRequest(key)
			go l.Unlock()
			b.await("the release is delayed", held)
			proxy.Drop() // so that no retry arrives
			late := time.NewTimer(ttl + ttl/4)
			defer late.Stop()
			<-late.C
			waiter := b.enqueueFor(locks, what.waits)
			behind := b.enqueueFor(rival, what.behind)
			b.begin()
			deliver()
			e := b.awaitEntry(waiter)
			s := b.inspect(rival, job)
			left := time.Until(e.lease.Deadline())
			var remaining time.Duration
			for _, h := range s.Holders {
				if h.Token == e.lease.Token() {
					remaining = h.Remaining
				}
			}
			t.Logf("FIGURE late release, %s, then %s: the new holder assumes %v, the server has %v (limit: no less)", what.holds, what.waits, round(left), round(remaining))
			if remaining < left {
				b.skipIfStalled(ttl / 4)
				t.Errorf("the new holder assumes %v, the server has %v: %+v", left, remaining, s)
			}
			// A try now must not find the lease expired.
			_, _ = rival.RWMutex(job).Writer().TryLock(t.Context())
			select {
			case x := <-behind:
				if err := e.lease.Err(); err == nil {
					t.Errorf("two hold: %s with fence %d, %s with fence %d", what.waits, e.lease.Fence(), what.behind, x.lease.Fence())
				}
				b.unlock(x.lease)
				return
			case <-time.After(50 * time.Millisecond): // it does not enter
			}
			b.unlock(e.lease)
			b.unlock(b.awaitEntry(behind).lease)
		})
	}
}
