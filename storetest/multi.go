package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// The cases for multi-locks: several names held together.

func multiCases() []Case {
	return []Case{
		{"groups", "Groups returns each name once, and the same groups for any order of the names", groups},
		{"all or none", "a request for several names acquires all or none, with one fence", allOrNone},
		{"partial loss", "a multi-lock that lost one of its names holds none of the others while a repeated acquire waits", partialLoss},
		{"multi-lock waits", "a waiting multi-lock holds nothing, is not overtaken, and is notified to retry when it is first", multiWaits},
		{"multi-lock cycle", "multi-locks that overlap in a cycle are all served, in the order of their requests", multiCycle},
		{"multi-lock cancel", "a cancelled multi-lock leaves all its queues, and later waiters are served", multiCancel},
		{"dead multi-lock", "a waiting multi-lock without a heartbeat blocks its names for at most a waiter TTL", multiDead},
		{"multi-lock clients", "many clients acquire several names in any order, and each name has one holder at a time", multiClients},
	}
}

// newMulti returns a request for several names in a group. It skips the test if the store cannot
// acquire two names in a single step.
func (p *testClient) newMulti(names ...string) driver.AcquireRequest {
	p.t.Helper()
	if g := p.s.Groups(names); len(g) > 1 {
		p.t.Skipf("the store splits the names into %q", g)
	}
	r := p.newRequest(names[0])
	r.With = names[1:]
	return r
}

func groups(t *testing.T, s *driver.Full) {
	names := []string{"a", "b", "{x}1", "c", "{x}2", "d", "e"}
	want := s.Groups(slices.Sorted(slices.Values(names)))
	seen := make(map[string]int)
	for _, group := range want {
		for _, name := range group {
			seen[name]++
		}
	}
	for _, name := range names {
		if seen[name] != 1 {
			t.Errorf("%q appears %d times in %q", name, seen[name], want)
		}
	}
	slices.Reverse(names)
	have := s.Groups(names)
	for i := range have {
		if len(have) != len(want) || !slices.Equal(slices.Sorted(slices.Values(have[i])), slices.Sorted(slices.Values(want[i]))) {
			t.Fatalf("%q in one order, %q in another", want, have)
		}
	}
}

const x, y, z = "{multi}x", "{multi}y", "{multi}z"

func allOrNone(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	multi, other := p.newMulti(x, y, z), p.newRequest(y)
	last := p.mustAcquire(other).Fence
	multi.Queue = false
	if a := p.acquire(multi); a.Held || a.Name != y || a.Holder != other.Token || a.Remaining <= 0 || a.Remaining > other.TTL {
		t.Fatalf("%+v while %q is held", a, y)
	}
	for _, name := range []string{x, z} {
		p.wantHolder(name, "")
	}
	reader := p.newReader(z)
	last = max(last, p.mustAcquire(reader).Fence)
	p.mustRelease(other, 0)
	if p.try(multi) {
		t.Fatal("granted beside a reader")
	}
	p.wantHolder(x, "")
	p.mustRelease(reader, 0)
	late := multi
	late.Until = time.Now().Add(-time.Second)
	if a, err := s.Acquire(t.Context(), late); !errors.Is(err, dibs.ErrUnavailable) || a.Held {
		t.Errorf("%+v, %v for an expired request", a, err)
	}
	a := p.mustAcquire(multi)
	if a.Fence <= last {
		t.Errorf("fence %d after %d", a.Fence, last)
	}
	again := p.mustAcquire(multi)
	for _, name := range []string{x, y, z} {
		p.wantHolder(name, multi.Token)
		r := multi
		r.Name = name
		if err := p.extend(r, time.Hour); err != nil {
			t.Errorf("extend %q: %v", name, err)
		}
		p.mustRelease(r, again.Fence)
		if f := p.mustAcquire(p.newRequest(name)).Fence; f <= again.Fence || again.Fence < a.Fence {
			t.Errorf("%q: fence %d after %d after %d", name, f, again.Fence, a.Fence)
		}
	}
}

func partialLoss(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	multi := p.newMulti(x, y, z)
	p.mustAcquire(multi)
	if freed, err := s.Release(operationContext(t), driver.ReleaseRequest{Name: y, Token: multi.Token}); !freed || err != nil {
		t.Fatal(freed, err)
	}
	next := p.newRequest(x)
	p.mustQueue(next, 1)
	other := p.newRequest(y)
	p.mustAcquire(other)
	multi.Queue = true
	// A store that released x before it read the queues sees x with its next holder.
	switch a := p.acquire(multi); {
	case !a.Held && a.Name == y && a.Holder == other.Token:
	case !a.Held && a.Name == x && a.Holder == next.Token:
	default:
		t.Fatalf("%+v while %q is held by another token", a, y)
	}
	p.wantGranted(next)
	p.wantHolder(z, "")
	p.mustRelease(next, 0)
	p.mustRelease(other, 0)
	for _, name := range []string{x, y, z} {
		p.wantHolder(name, "")
	}
	if a := p.acquire(multi); !a.Held {
		t.Fatalf("%+v when all names are free", a)
	}
	for _, name := range []string{x, y, z} {
		p.wantHolder(name, multi.Token)
		if freed, err := s.Release(operationContext(t), driver.ReleaseRequest{Name: name, Token: multi.Token}); !freed || err != nil {
			t.Fatal(freed, err)
		}
	}
}

func multiWaits(t *testing.T, s *driver.Full) {
	p, q := newClient(t, s), newClient(t, s)
	onX, onY, multi := q.newRequest(x), q.newRequest(y), p.newMulti(x, y)
	q.mustAcquire(onX)
	q.mustAcquire(onY)
	first := p.mustQueue(multi, 1)
	behind := q.newRequest(x)
	q.mustQueue(behind, 2)
	q.mustRelease(onX, 0)
	if e := p.nextEvent(); e.Kind != driver.EventRetry || e.Token != multi.Token {
		t.Fatalf("event %+v, want EventRetry", e)
	}
	if again := p.mustQueue(multi, 1); again.Ticket != first.Ticket || again.Name != y || again.Holder != onY.Token {
		t.Errorf("%+v after %+v, want it to wait for %q", again, first, y)
	}
	p.wantHolder(x, "") // it waits for y, and holds nothing
	if q.try(q.newRequest(x)) {
		t.Fatal("a try overtook a waiter")
	}
	if a := q.mustQueue(behind, 2); a.Remaining < time.Second {
		t.Errorf("%+v: would retry at once in a loop", a)
	}
	p.wantNoEvent(30 * time.Millisecond) // otherwise two multi-locks would notify each other forever
	q.mustRelease(onY, 0)
	if e := p.nextEvent(); e.Kind != driver.EventRetry || e.Token != multi.Token {
		t.Fatalf("event %+v, want EventRetry", e)
	}
	fence := p.mustAcquire(multi).Fence
	q.wantNoEvent(30 * time.Millisecond)
	p.mustRelease(multi, fence)
	q.wantGranted(behind)
	p.wantHolder(y, multi.Token)
}

func multiCycle(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	holder := p.newMulti(x, y, z)
	p.mustAcquire(holder)
	multis := []driver.AcquireRequest{p.newMulti(x, y), p.newMulti(y, z), p.newMulti(z, x)}
	for _, r := range multis {
		if a := p.acquire(r); a.Held || a.Ticket == 0 {
			t.Fatalf("%+v", a)
		}
	}
	p.mustCancel(holder)
	for i, r := range multis {
		for _, later := range multis[i+1:] {
			if a := p.acquire(later); a.Held {
				t.Fatalf("%s was overtaken by %s", r.Token, later.Token)
			}
		}
		p.mustAcquire(r)
		p.mustCancel(r)
	}
	if st := p.state(x); st.Holding > 0 || st.Waiting > 0 {
		t.Errorf("left behind: %+v", st)
	}
}

func multiCancel(t *testing.T, s *driver.Full) {
	p, q := newClient(t, s), newClient(t, s)
	onY := q.newRequest(y)
	q.mustAcquire(onY)
	multi := p.newMulti(x, y)
	p.mustQueue(multi, 1)
	behind := q.newRequest(x)
	q.mustQueue(behind, 2)
	p.mustCancel(multi)
	q.wantGranted(behind)
	q.mustRelease(onY, 0)
	for _, name := range []string{x, y} {
		if st := p.state(name); st.Waiting != 0 {
			t.Errorf("%q: %+v", name, st)
		}
	}
	q.mustRelease(behind, 0)
	p.mustAcquire(multi)
	p.mustCancel(multi)
	p.wantHolder(x, "")
	p.wantHolder(y, "")
}

func multiDead(t *testing.T, s *driver.Full) {
	dead, p := newSilentClient(t, s), newSilentClient(t, s)
	onY := p.newRequest(y)
	p.mustAcquire(onY)
	dead.mustQueue(dead.newMulti(x, y), 1)
	r := p.newRequest(x)
	p.acquireBy(r, time.Now().Add(p.limits.WaiterTTL))
}

func multiClients(t *testing.T, s *driver.Full) {
	const processes, workers, rounds, names = 3, 5, 10, 5
	inside := make([]atomic.Int32, names)
	var group sync.WaitGroup
	for range processes {
		c := dibs.New(s, dibs.TTL(time.Minute), dibs.Timeout(operationTimeout))
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		for i := range workers {
			group.Go(func() {
				for r := range rounds {
					mine := []int{(i + r) % names, (i*2 + r + 1) % names, (i + 3*r) % names}
					slices.Sort(mine)
					mine = slices.Compact(mine)
					var multi []string
					for _, n := range mine {
						multi = append(multi, fmt.Sprintf("n%d", n))
					}
					slices.Reverse(multi)
					err := c.All(multi).Do(t.Context(), func(ctx context.Context) error {
						for _, n := range mine {
							if inside[n].Add(1) != 1 {
								t.Errorf("n%d has two holders", n)
							}
							if _, err := dibs.FenceOf(ctx, fmt.Sprintf("n%d", n)); err != nil {
								t.Errorf("no fence for n%d: %v", n, err)
							}
						}
						for _, n := range mine {
							inside[n].Add(-1)
						}
						return nil
					})
					single := c.Mutex(multi[0]).Do(t.Context(), func(context.Context) error {
						if inside[mine[len(mine)-1]].Add(1) != 1 {
							t.Errorf("%s has two holders", multi[0])
						}
						inside[mine[len(mine)-1]].Add(-1)
						return nil
					})
					if err := errors.Join(err, single); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	group.Wait()
}
