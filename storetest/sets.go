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

func setCases() []Case {
	return []Case{
		{"groups", "Groups has each name once, the same in whatever order they are given", groups},
		{"all or none", "a claim on several names takes all or none, under one fence", allOrNone},
		{"rest of a set", "a set that has lost one of its names and asks again holds none of the others while it waits", restOfASet},
		{"set waits", "a set that waits holds nothing, is not overtaken, and is asked to look when its turn comes", setWaits},
		{"sets in a circle", "sets that overlap in a circle are all served, in the order in which they asked", setsInACircle},
		{"set gives up", "a set that gives up leaves all its places, and lets those behind it in", setGivesUp},
		{"dead set", "a set that gives no heartbeat blocks its names for a claim TTL at most", deadSet},
		{"clients of sets", "many clients take sets of names in any order, each name is held by one at a time", clientsOfSets},
	}
}

// together returns a claim of the party on names of one group, or skips the test if
// the store cannot take two names in one step.
func (p *party) together(names ...string) driver.AcquireRequest {
	p.t.Helper()
	if g := p.s.Groups(names); len(g) > 1 {
		p.t.Skipf("the store takes %q apart", g)
	}
	c := p.claim(names[0])
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
	p := mute(t, s)
	set, other := p.together(x, y, z), p.claim(y)
	last := p.take(other).Fence
	set.Queue = false
	if a := p.ask(set); a.Held || a.Name != y || a.Holder != other.Token || a.Remaining <= 0 || a.Remaining > other.TTL {
		t.Fatalf("%+v while %q is held", a, y)
	}
	for _, name := range []string{x, z} {
		p.wantHolder(name, "")
	}
	reader := p.read(z)
	last = max(last, p.take(reader).Fence)
	p.free(other, 0)
	if p.try(set) {
		t.Fatal("taken beside a reader")
	}
	p.wantHolder(x, "")
	p.free(reader, 0)
	late := set
	late.Until = time.Now().Add(-time.Second)
	if a, err := s.Acquire(t.Context(), late); !errors.Is(err, dibs.ErrUnavailable) || a.Held {
		t.Errorf("%+v, %v for a claim whose time is over", a, err)
	}
	a := p.take(set)
	if a.Fence <= last {
		t.Errorf("fence %d after %d", a.Fence, last)
	}
	again := p.take(set)
	for _, name := range []string{x, y, z} {
		p.wantHolder(name, set.Token)
		c := set
		c.Name = name
		if err := p.extend(c, time.Hour); err != nil {
			t.Errorf("extend %q: %v", name, err)
		}
		p.free(c, again.Fence)
		if f := p.take(p.claim(name)).Fence; f <= again.Fence || again.Fence < a.Fence {
			t.Errorf("%q: fence %d after %d after %d", name, f, again.Fence, a.Fence)
		}
	}
}

func restOfASet(t *testing.T, s driver.Store) {
	p := join(t, s)
	set := p.together(x, y, z)
	p.take(set)
	if freed, err := s.Release(t.Context(), driver.ReleaseRequest{Name: y, Token: set.Token}); !freed || err != nil {
		t.Fatal(freed, err)
	}
	next := p.claim(x)
	p.wait(next, 1)
	other := p.claim(y)
	p.take(other)
	set.Queue = true
	if a := p.ask(set); a.Held || a.Name != y || a.Holder != other.Token {
		t.Fatalf("%+v while %q is held by another one", a, y)
	}
	p.granted(next)
	p.wantHolder(z, "")
	p.free(next, 0)
	p.free(other, 0)
	for _, name := range []string{x, y, z} {
		p.wantHolder(name, "")
	}
	if a := p.ask(set); !a.Held {
		t.Fatalf("%+v when all names are free", a)
	}
	for _, name := range []string{x, y, z} {
		p.wantHolder(name, set.Token)
		if freed, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Token: set.Token}); !freed || err != nil {
			t.Fatal(freed, err)
		}
	}
}

func setWaits(t *testing.T, s driver.Store) {
	p, q := join(t, s), join(t, s)
	onX, onY, set := q.claim(x), q.claim(y), p.together(x, y)
	q.take(onX)
	q.take(onY)
	first := p.wait(set, 1)
	behind := q.claim(x)
	q.wait(behind, 2)
	q.free(onX, 0)
	if e := p.event(); e.Kind != driver.EventRetry || e.Token != set.Token {
		t.Fatalf("event %+v, want Look", e)
	}
	if again := p.wait(set, 1); again.Ticket != first.Ticket || again.Name != y || again.Holder != onY.Token {
		t.Errorf("%+v after %+v, want to wait for %q", again, first, y)
	}
	p.wantHolder(x, "") // it waits for y, and holds nothing
	if q.try(q.claim(x)) {
		t.Fatal("a try overtook")
	}
	if a := q.wait(behind, 2); a.Remaining < time.Second {
		t.Errorf("%+v: would ask again at once, and again", a)
	}
	p.silent(30 * time.Millisecond) // or two sets would ask each other to ask, for ever
	q.free(onY, 0)
	if e := p.event(); e.Kind != driver.EventRetry || e.Token != set.Token {
		t.Fatalf("event %+v, want Look", e)
	}
	fence := p.take(set).Fence
	q.silent(30 * time.Millisecond)
	p.free(set, fence)
	q.granted(behind)
	p.wantHolder(y, set.Token)
}

func setsInACircle(t *testing.T, s driver.Store) {
	p := join(t, s)
	holder := p.together(x, y, z)
	p.take(holder)
	sets := []driver.AcquireRequest{p.together(x, y), p.together(y, z), p.together(z, x)}
	for _, c := range sets {
		if a := p.ask(c); a.Held || a.Ticket == 0 {
			t.Fatalf("%+v", a)
		}
	}
	p.abandon(holder)
	for i, c := range sets {
		for _, later := range sets[i+1:] {
			if a := p.ask(later); a.Held {
				t.Fatalf("%s was overtaken by %s", c.Token, later.Token)
			}
		}
		p.take(c)
		p.abandon(c)
	}
	if st := p.state(x); st.Holding > 0 || st.Waiting > 0 {
		t.Errorf("left behind: %+v", st)
	}
}

func setGivesUp(t *testing.T, s driver.Store) {
	p, q := join(t, s), join(t, s)
	onY := q.claim(y)
	q.take(onY)
	set := p.together(x, y)
	p.wait(set, 1)
	behind := q.claim(x)
	q.wait(behind, 2)
	p.abandon(set)
	q.granted(behind)
	q.free(onY, 0)
	for _, name := range []string{x, y} {
		if st := p.state(name); st.Waiting != 0 {
			t.Errorf("%q: %+v", name, st)
		}
	}
	q.free(behind, 0)
	p.take(set)
	p.abandon(set)
	p.wantHolder(x, "")
	p.wantHolder(y, "")
}

func deadSet(t *testing.T, s driver.Store) {
	dead, p := mute(t, s), mute(t, s)
	onY := p.claim(y)
	p.take(onY)
	dead.wait(dead.together(x, y), 1)
	c := p.claim(x)
	p.becomes(c, time.Now().Add(driver.WaiterTTL))
}

func clientsOfSets(t *testing.T, s driver.Store) {
	const processes, workers, rounds, names = 3, 5, 10, 5
	inside := make([]atomic.Int32, names)
	var group sync.WaitGroup
	for range processes {
		c := dibs.New(s, dibs.TTL(time.Minute), dibs.Timeout(patience))
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
