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

// The laws of several names that are held together.

func multiCases() []Case {
	return []Case{
		{"groups", "Groups has each name once, the same in whatever order they are given", groups},
		{"all or none", "a claim on several names takes all or none, under one fence", allOrNone},
		{"rest of a set", "a set that has lost one of its names and asks again holds none of the others while it waits", partialLoss},
		{"set waits", "a set that waits holds nothing, is not overtaken, and is asked to look when its turn comes", multiWaits},
		{"sets in a circle", "sets that overlap in a circle are all served, in the order in which they asked", multiCycle},
		{"set gives up", "a set that gives up leaves all its places, and lets those behind it in", multiCancel},
		{"dead set", "a set that gives no heartbeat blocks its names for a claim TTL at most", multiDead},
		{"clients of sets", "many clients take sets of names in any order, each name is held by one at a time", multiClients},
	}
}

// together returns a claim of the party on names of one group, or skips the test if
// the store cannot take two names in one step.
func (p *testClient) newMulti(names ...string) driver.AcquireRequest {
	p.t.Helper()
	if g := p.s.Groups(names); len(g) > 1 {
		p.t.Skipf("the store takes %q apart", g)
	}
	c := p.newRequest(names[0])
	c.With = names[1:]
	return c
}

func groups(t *testing.T, s driver.Store) {
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
			t.Errorf("%q comes %d times in %q", name, seen[name], want)
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

const x, y, z = "{set}x", "{set}y", "{set}z"

func allOrNone(t *testing.T, s driver.Store) {
	p := newSilentClient(t, s)
	set, other := p.newMulti(x, y, z), p.newRequest(y)
	last := p.mustAcquire(other).Fence
	set.Queue = false
	if a := p.acquire(set); a.Held || a.Name != y || a.Holder != other.Token || a.Remaining <= 0 || a.Remaining > other.TTL {
		t.Fatalf("%+v while %q is held", a, y)
	}
	for _, name := range []string{x, z} {
		p.wantHolder(name, "")
	}
	reader := p.newReader(z)
	last = max(last, p.mustAcquire(reader).Fence)
	p.mustRelease(other, 0)
	if p.try(set) {
		t.Fatal("taken beside a reader")
	}
	p.wantHolder(x, "")
	p.mustRelease(reader, 0)
	late := set
	late.Until = time.Now().Add(-time.Second)
	if a, err := s.Acquire(t.Context(), late); !errors.Is(err, dibs.ErrUnavailable) || a.Held {
		t.Errorf("%+v, %v for a claim whose time is over", a, err)
	}
	a := p.mustAcquire(set)
	if a.Fence <= last {
		t.Errorf("fence %d after %d", a.Fence, last)
	}
	again := p.mustAcquire(set)
	for _, name := range []string{x, y, z} {
		p.wantHolder(name, set.Token)
		c := set
		c.Name = name
		if err := p.extend(c, time.Hour); err != nil {
			t.Errorf("extend %q: %v", name, err)
		}
		p.mustRelease(c, again.Fence)
		if f := p.mustAcquire(p.newRequest(name)).Fence; f <= again.Fence || again.Fence < a.Fence {
			t.Errorf("%q: fence %d after %d after %d", name, f, again.Fence, a.Fence)
		}
	}
}

func partialLoss(t *testing.T, s driver.Store) {
	p := newClient(t, s)
	set := p.newMulti(x, y, z)
	p.mustAcquire(set)
	if freed, err := s.Release(t.Context(), driver.ReleaseRequest{Name: y, Token: set.Token}); !freed || err != nil {
		t.Fatal(freed, err)
	}
	next := p.newRequest(x)
	p.mustQueue(next, 1)
	other := p.newRequest(y)
	p.mustAcquire(other)
	set.Queue = true
	if a := p.acquire(set); a.Held || a.Name != y || a.Holder != other.Token {
		t.Fatalf("%+v while %q is held by another one", a, y)
	}
	p.wantGranted(next)
	p.wantHolder(z, "")
	p.mustRelease(next, 0)
	p.mustRelease(other, 0)
	for _, name := range []string{x, y, z} {
		p.wantHolder(name, "")
	}
	if a := p.acquire(set); !a.Held {
		t.Fatalf("%+v when all names are free", a)
	}
	for _, name := range []string{x, y, z} {
		p.wantHolder(name, set.Token)
		if freed, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Token: set.Token}); !freed || err != nil {
			t.Fatal(freed, err)
		}
	}
}

func multiWaits(t *testing.T, s driver.Store) {
	p, q := newClient(t, s), newClient(t, s)
	onX, onY, set := q.newRequest(x), q.newRequest(y), p.newMulti(x, y)
	q.mustAcquire(onX)
	q.mustAcquire(onY)
	first := p.mustQueue(set, 1)
	behind := q.newRequest(x)
	q.mustQueue(behind, 2)
	q.mustRelease(onX, 0)
	if e := p.nextEvent(); e.Kind != driver.EventRetry || e.Token != set.Token {
		t.Fatalf("event %+v, want Look", e)
	}
	if again := p.mustQueue(set, 1); again.Ticket != first.Ticket || again.Name != y || again.Holder != onY.Token {
		t.Errorf("%+v after %+v, want to wait for %q", again, first, y)
	}
	p.wantHolder(x, "") // it waits for y, and holds nothing
	if q.try(q.newRequest(x)) {
		t.Fatal("a try overtook")
	}
	if a := q.mustQueue(behind, 2); a.Remaining < time.Second {
		t.Errorf("%+v: would ask again at once, and again", a)
	}
	p.wantNoEvent(30 * time.Millisecond) // or two sets would ask each other to ask, for ever
	q.mustRelease(onY, 0)
	if e := p.nextEvent(); e.Kind != driver.EventRetry || e.Token != set.Token {
		t.Fatalf("event %+v, want Look", e)
	}
	fence := p.mustAcquire(set).Fence
	q.wantNoEvent(30 * time.Millisecond)
	p.mustRelease(set, fence)
	q.wantGranted(behind)
	p.wantHolder(y, set.Token)
}

func multiCycle(t *testing.T, s driver.Store) {
	p := newClient(t, s)
	holder := p.newMulti(x, y, z)
	p.mustAcquire(holder)
	sets := []driver.AcquireRequest{p.newMulti(x, y), p.newMulti(y, z), p.newMulti(z, x)}
	for _, c := range sets {
		if a := p.acquire(c); a.Held || a.Ticket == 0 {
			t.Fatalf("%+v", a)
		}
	}
	p.mustCancel(holder)
	for i, c := range sets {
		for _, later := range sets[i+1:] {
			if a := p.acquire(later); a.Held {
				t.Fatalf("%s was overtaken by %s", c.Token, later.Token)
			}
		}
		p.mustAcquire(c)
		p.mustCancel(c)
	}
	if st := p.state(x); st.Holding > 0 || st.Waiting > 0 {
		t.Errorf("left behind: %+v", st)
	}
}

func multiCancel(t *testing.T, s driver.Store) {
	p, q := newClient(t, s), newClient(t, s)
	onY := q.newRequest(y)
	q.mustAcquire(onY)
	set := p.newMulti(x, y)
	p.mustQueue(set, 1)
	behind := q.newRequest(x)
	q.mustQueue(behind, 2)
	p.mustCancel(set)
	q.wantGranted(behind)
	q.mustRelease(onY, 0)
	for _, name := range []string{x, y} {
		if st := p.state(name); st.Waiting != 0 {
			t.Errorf("%q: %+v", name, st)
		}
	}
	q.mustRelease(behind, 0)
	p.mustAcquire(set)
	p.mustCancel(set)
	p.wantHolder(x, "")
	p.wantHolder(y, "")
}

func multiDead(t *testing.T, s driver.Store) {
	dead, p := newSilentClient(t, s), newSilentClient(t, s)
	onY := p.newRequest(y)
	p.mustAcquire(onY)
	dead.mustQueue(dead.newMulti(x, y), 1)
	c := p.newRequest(x)
	p.acquireBy(c, time.Now().Add(driver.WaiterTTL))
}

func multiClients(t *testing.T, s driver.Store) {
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
					var set []string
					for _, n := range mine {
						set = append(set, fmt.Sprintf("n%d", n))
					}
					slices.Reverse(set)
					err := c.All(set...).Do(t.Context(), func(ctx context.Context) error {
						for _, n := range mine {
							if inside[n].Add(1) != 1 {
								t.Errorf("two hold n%d", n)
							}
							if dibs.FenceOf(ctx, fmt.Sprintf("n%d", n)) == 0 {
								t.Errorf("no fence for n%d", n)
							}
						}
						for _, n := range mine {
							inside[n].Add(-1)
						}
						return nil
					})
					single := c.Mutex(set[0]).Do(t.Context(), func(context.Context) error {
						if inside[mine[len(mine)-1]].Add(1) != 1 {
							t.Errorf("two hold %s", set[0])
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
