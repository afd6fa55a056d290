package dibs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// An apart store takes one name in one step, as a cluster does where each name is in
// a slot of its own.
type apart struct{ driver.Store }

func (apart) Groups(names []string) [][]string {
	names = slices.Sorted(slices.Values(names))
	groups := make([][]string, len(names))
	for i, name := range names {
		groups[i] = []string{name}
	}
	return groups
}

// A way makes a store take sets in one way or another.
type way func(driver.Store) driver.Store

// bothWays runs a test in virtual time where a set is taken in one step, and where its
// names are gathered one by one.
func bothWays(t *testing.T, test func(t *testing.T, as way)) {
	t.Helper()
	for what, as := range map[string]way{
		"in one step": func(s driver.Store) driver.Store { return s },
		"one by one":  func(s driver.Store) driver.Store { return apart{s} },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) { test(t, as) })
		})
	}
}

// together queues for names in a client of its own.
func renewWindow(t *testing.T, s driver.Store, names []string, options ...dibs.Option) *turn {
	set := open(t, s).All(names...)
	return queue(func() (*dibs.Lease, error) { return set.Lock(t.Context(), options...) })
}

// mutex queues for one name in a client of its own.
func mutex(t *testing.T, s driver.Store, name string, options ...dibs.Option) *turn {
	m := open(t, s).Mutex(name)
	return queue(func() (*dibs.Lease, error) { return m.Lock(t.Context(), options...) })
}

// busy wants that nobody can take any of the names.
func busy(t *testing.T, s driver.Store, names ...string) {
	t.Helper()
	c := open(t, s)
	for _, name := range names {
		if _, err := c.Mutex(name).TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Fatalf("%q: error %v, want busy", name, err)
		}
	}
}

// allFree wants that nothing is left of any of the names.
func allFree(t *testing.T, s driver.Store, names ...string) {
	t.Helper()
	synctest.Wait()
	for _, name := range names {
		free(t, s, name)
	}
}

func TestAllOrNone(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		s := memstore.New()
		set := open(t, as(s)).All("a", "b", "c")
		l, err := set.TryLock(t.Context())
		wantErr(t, err)
		busy(t, s, "a", "b", "c")
		if l.Name() != "a" {
			t.Errorf("name %q, want the first of all", l.Name())
		}
		wantErr(t, l.Unlock())
		allFree(t, s, "a", "b", "c")
		for _, name := range []string{"a", "b", "c"} {
			one := mutex(t, s, name)
			_, err := set.TryLock(t.Context())
			wantErr(t, err, dibs.ErrBusy)
			var is *dibs.BusyError
			if !errors.As(err, &is) || is.Name != name || is.Holder != one.lease.Token() {
				t.Errorf("%v, want busy: %q held by %s", err, name, one.lease.Token())
			}
			unlock(t, one)
			allFree(t, s, "a", "b", "c")
		}
	})
}

func TestASetIsRenewedAsAWhole(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		s := memstore.New()
		l := renewWindow(t, as(s), []string{"a", "b", "c"}, dibs.TTL(2*time.Second))
		wantIn(t, l)
		time.Sleep(time.Hour)
		wantErr(t, l.lease.Err())
		busy(t, s, "a", "b", "c")
		wantErr(t, l.lease.Extend(t.Context(), time.Minute))
		state, err := s.Inspect(t.Context(), "c")
		if err != nil || state.Holders[0].Remaining != time.Minute {
			t.Errorf("extended to a minute: %+v, %v", state, err)
		}
		unlock(t, l)
		allFree(t, s, "a", "b", "c")
	})
}

// Overlapping sets, in any order and with any of them giving up, end, exclude each
// other and leave nothing.
func TestOverlappingSets(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		s := memstore.New()
		var mu sync.Mutex
		holding, runs := make(map[string]int), 0
		var group sync.WaitGroup
		seed := rand.Uint64()
		for i := range 50 {
			c := open(t, as(s))
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			group.Go(func() {
				for range 20 {
					var names []string
					for _, n := range r.Perm(10)[:3] {
						names = append(names, fmt.Sprintf("n%d", n))
					}
					ctx, cancel := context.WithCancel(t.Context())
					if r.IntN(2) == 0 {
						time.AfterFunc(time.Duration(r.IntN(300))*time.Millisecond, cancel)
					}
					l, err := c.All(names...).Lock(ctx)
					cause := context.Cause(ctx)
					cancel()
					if err != nil { // or ErrUnavailable, if it ends with a question on its way
						wantErr(t, err, cause)
						continue
					}
					mu.Lock()
					runs++
					for _, name := range names {
						if holding[name]++; holding[name] > 1 {
							t.Errorf("seed %d: %d hold %s", seed, holding[name], name)
						}
					}
					mu.Unlock()
					time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
					mu.Lock()
					for _, name := range names {
						holding[name]--
					}
					mu.Unlock()
					wantErr(t, l.Unlock())
				}
			})
		}
		begin := time.Now()
		group.Wait()
		if d := time.Since(begin); d > time.Minute {
			t.Errorf("seed %d: took %v", seed, d)
		}
		if runs < 500 {
			t.Errorf("seed %d: only %d of 1000 were served", seed, runs)
		}
		for i := range 10 {
			eventually(t, s, fmt.Sprintf("n%d", i))
		}
	})
}

func TestASetCountsANameOnce(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		s := memstore.New()
		names := []string{"b", "a", "b", "a", "a"}
		set := open(t, as(s)).All(names...)
		names[0] = "changed"
		l, err := set.Lock(t.Context())
		wantErr(t, err)
		if l.Name() != "a" || l.FenceOf("b") == 0 || l.FenceOf("changed") != 0 {
			t.Errorf("%q, fences %d and %d", l.Name(), l.FenceOf("b"), l.FenceOf("changed"))
		}
		wantErr(t, l.Unlock())
		allFree(t, s, "a", "b")

		wantErr(t, open(t, as(s)).All(slices.Repeat([]string{"a"}, driver.MaxNames+1)...).Do(t.Context(), func(context.Context) error {
			busy(t, s, "a")
			return nil
		}))
		allFree(t, s, "a")
	})
}

func TestBadSet(t *testing.T) {
	var many []string
	for i := range driver.MaxNames + 1 {
		many = append(many, fmt.Sprint(i))
	}
	for _, s := range []driver.Store{untouched{t}, apart{untouched{t}}} {
		c := open(t, s)
		for what, set := range map[string]*dibs.MultiMutex{
			"no name":       c.All(),
			"many names":    c.All(many...),
			"an empty name": c.All("a", "", "b"),
			"a long name":   c.All("a", strings.Repeat("n", driver.MaxName+1)),
			"not UTF-8":     c.All("a", "\xff"),
			"a bad default": open(t, s, dibs.TTL(0)).All("a", "b"),
		} {
			for _, lock := range []func(context.Context, ...dibs.Option) (*dibs.Lease, error){set.Lock, set.TryLock} {
				if l, err := lock(t.Context()); l != nil || !errors.Is(err, dibs.ErrInvalid) {
					t.Errorf("%s: %v, %v", what, l, err)
				}
			}
			wantErr(t, set.Do(t.Context(), func(context.Context) error { t.Error("fn was called"); return nil }), dibs.ErrInvalid)
		}
		_, err := c.All("a", "b").Lock(t.Context(), dibs.MaxHold(-1))
		wantErr(t, err, dibs.ErrInvalid)
	}
	bothWays(t, func(t *testing.T, as way) {
		wantErr(t, open(t, as(memstore.New())).All(many[1:]...).Do(t.Context(), func(context.Context) error { return nil }))
	})
}

func TestFenceOfEachName(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		s := memstore.New()
		c := open(t, as(s))
		before := lock(t, c, "b")
		wantErr(t, before.Unlock())
		l, err := c.All("a", "b").Lock(t.Context())
		wantErr(t, err)
		for _, name := range []string{"a", "b"} {
			state, err := s.Inspect(t.Context(), name)
			if err != nil || l.FenceOf(name) != state.Holders[0].Fence || l.FenceOf(name) <= before.Fence() {
				t.Errorf("fence of %s: %d, want that of %+v, %v; more than %d", name, l.FenceOf(name), state, err, before.Fence())
			}
		}
		if l.Fence() != l.FenceOf("a") || l.FenceOf("c") != 0 {
			t.Errorf("fence %d, of a %d, of a name that it does not hold %d", l.Fence(), l.FenceOf("a"), l.FenceOf("c"))
		}
		// The innermost that holds the name, also if another one is between.
		wantErr(t, c.Mutex("c").Do(l.Context(), func(ctx context.Context) error {
			if a, b := dibs.FenceOf(ctx, "a"), dibs.FenceOf(ctx, "b"); a != l.FenceOf("a") || b != l.FenceOf("b") {
				t.Errorf("fences %d and %d in the context, want %d and %d", a, b, l.FenceOf("a"), l.FenceOf("b"))
			}
			if dibs.FenceOf(ctx, "c") != dibs.Fence(ctx) || dibs.Fence(ctx) <= l.FenceOf("b") || dibs.FenceOf(ctx, "d") != 0 {
				t.Errorf("fence of c %d, %d; of d %d", dibs.FenceOf(ctx, "c"), dibs.Fence(ctx), dibs.FenceOf(ctx, "d"))
			}
			return nil
		}))
		if dibs.FenceOf(t.Context(), "a") != 0 {
			t.Error("a fence without a lease")
		}
		wantErr(t, l.Unlock())
	})
}

// A lease on several names is lost when one of them is; Unlock frees the others.
func TestASetIsLostWithOneName(t *testing.T) {
	for _, name := range []string{"a", "b", "c"} {
		bothWays(t, func(t *testing.T, as way) {
			s := memstore.New()
			c := open(t, as(s))
			l, err := c.All("a", "b", "c").Lock(t.Context(), dibs.TTL(3*time.Second))
			wantErr(t, err)
			ctx := l.Context()
			synctest.Wait() // until it listens
			broken, err := open(t, s).Revoke(t.Context(), name, l.FenceOf(name))
			if !broken || err != nil {
				t.Fatal(broken, err)
			}
			wantLost(t, l.Err(), dibs.ReasonRevoked)
			wantLost(t, context.Cause(ctx), dibs.ReasonRevoked)
			free(t, s, name)
			wantLost(t, l.Unlock(), dibs.ReasonRevoked)
			allFree(t, s, "a", "b", "c")

			// The same without a message: at the next renewal.
			l, err = c.All("a", "b", "c").Lock(t.Context(), dibs.TTL(3*time.Second))
			wantErr(t, err)
			begin := time.Now()
			_, err = s.Release(t.Context(), driver.ReleaseRequest{Name: name, Token: l.Token()})
			wantErr(t, err)
			<-l.Context().Done()
			within(t, time.Since(begin), 0, time.Second)
			wantLost(t, l.Err(), dibs.ReasonTaken)
			var lost *dibs.LostError
			if errors.As(l.Err(), &lost); lost.Name != name {
				t.Errorf("%v, want %q", lost, name)
			}
			wantLost(t, l.Unlock(), dibs.ReasonTaken)
			allFree(t, s, "a", "b", "c")

			// And by Unlock, if that is first to see it.
			l, err = c.All("a", "b", "c").Lock(t.Context())
			wantErr(t, err)
			_, err = s.Release(t.Context(), driver.ReleaseRequest{Name: name, Token: l.Token()})
			wantErr(t, err)
			wantLost(t, l.Unlock(), dibs.ReasonTaken)
			allFree(t, s, "a", "b", "c")
		})
	}
}

func TestReentrantSet(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		s := memstore.New()
		c := open(t, as(s))
		wantErr(t, c.Mutex("b").Do(t.Context(), func(ctx context.Context) error {
			for _, option := range []dibs.Option{nil, dibs.Reentrant()} { // a part is not enough
				_, err := c.All("a", "b").Lock(ctx, option)
				wantErr(t, err, dibs.ErrReentrant)
			}
			free(t, s, "a")
			return c.All("b").Do(ctx, func(context.Context) error { return nil }, dibs.Reentrant())
		}))
		wantErr(t, c.All("a", "b", "c").Do(t.Context(), func(ctx context.Context) error {
			for _, take := range []func(context.Context, ...dibs.Option) (*dibs.Lease, error){
				c.All("c", "a").Lock, c.Mutex("b").Lock, c.RWMutex("c").RLock,
			} {
				_, err := take(ctx)
				wantErr(t, err, dibs.ErrReentrant)
				l, err := take(ctx, dibs.Reentrant())
				wantErr(t, err)
				wantErr(t, l.Unlock())
			}
			_, err := c.All("c", "d").Lock(ctx, dibs.Reentrant())
			wantErr(t, err, dibs.ErrReentrant)
			busy(t, s, "a", "b", "c")
			return nil
		}))
		allFree(t, s, "a", "b", "c", "d")
	})
}

func TestASetWaits(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		s := memstore.New()
		a, b := mutex(t, s, "a"), mutex(t, s, "b")
		set := renewWindow(t, as(s), []string{"a", "b", "c"})
		behind := renewWindow(t, as(s), []string{"c", "a"})
		time.Sleep(time.Minute)
		unlock(t, a)
		wantWaiting(t, set, behind)
		time.Sleep(time.Minute)
		unlock(t, b)
		freed := time.Now()
		wantIn(t, set)
		if d := time.Since(freed); d != 0 {
			t.Errorf("entered %v after the release", d)
		}
		wantWaiting(t, behind)
		unlock(t, set)
		wantIn(t, behind)
		unlock(t, behind)
		allFree(t, s, "a", "b", "c")
	})
}

func TestASetGivesUp(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		s := memstore.New()
		b := mutex(t, s, "b")
		set := open(t, as(s)).All("a", "b", "c")
		for what, give := range map[string]struct {
			options []dibs.Option
			took    time.Duration
		}{
			"no wait":    {[]dibs.Option{dibs.Wait(0)}, 0},
			"a wait":     {[]dibs.Option{dibs.Wait(7 * time.Second)}, 7 * time.Second},
			"attempts":   {[]dibs.Option{dibs.Attempts(10, 100*time.Millisecond)}, 900 * time.Millisecond},
			"one":        {[]dibs.Option{dibs.Attempts(1, time.Hour)}, 0},
			"short wait": {[]dibs.Option{dibs.Wait(time.Millisecond)}, time.Millisecond},
		} {
			begin := time.Now()
			_, err := set.Lock(t.Context(), give.options...)
			var is *dibs.BusyError
			if !errors.As(err, &is) || is.Name != "b" || is.Holder != b.lease.Token() || is.Cause != nil {
				t.Errorf("%s: %v, want busy: \"b\" held by %s", what, err, b.lease.Token())
			}
			if d := time.Since(begin); d != give.took {
				t.Errorf("%s: gave up after %v, want %v", what, d, give.took)
			}
			allFree(t, s, "a", "c")
			if state, _ := s.Inspect(t.Context(), "b"); state.Waiting != 0 {
				t.Errorf("%s: still in the queue", what)
			}
		}
		why := errors.New("the user left")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(why) })
		_, err := set.Lock(ctx)
		wantErr(t, err, dibs.ErrBusy, why)
		allFree(t, s, "a", "c")
		_, err = set.Lock(ctx)
		wantErr(t, err, why)

		// Attempts that go on until it is free.
		time.AfterFunc(950*time.Millisecond, func() { unlock(t, b) })
		begin := time.Now()
		l, err := set.Lock(t.Context(), dibs.Attempts(20, 100*time.Millisecond))
		wantErr(t, err)
		if d := time.Since(begin); d != time.Second {
			t.Errorf("got it after %v, want the 11th attempt, after 1s", d)
		}
		wantErr(t, l.Unlock())
		allFree(t, s, "a", "b", "c")
	})
}

// Wait is for the whole, not for each name.
func TestWaitOfASet(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		s := memstore.New()
		a, b := mutex(t, s, "a"), mutex(t, s, "b")
		time.AfterFunc(4*time.Second, func() { unlock(t, a) })
		begin := time.Now()
		_, err := open(t, as(s)).All("a", "b", "c").Lock(t.Context(), dibs.Wait(7*time.Second))
		wantErr(t, err, dibs.ErrBusy)
		if d := time.Since(begin); d != 7*time.Second {
			t.Errorf("gave up after %v, want 7s", d)
		}
		allFree(t, s, "a", "c")
		unlock(t, b)
		free(t, s, "b")
	})
}

// Closing the client ends the wait, and leaves nothing.
func TestCloseWhileASetWaits(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		s := memstore.New()
		b := mutex(t, s, "b")
		c := open(t, as(s))
		set := queue(func() (*dibs.Lease, error) { return c.All("a", "b", "c").Lock(t.Context()) })
		wantWaiting(t, set)
		wantErr(t, c.Close())
		if !set.over() {
			t.Fatal("it waits on")
		}
		wantErr(t, set.err, dibs.ErrClosed)
		unlock(t, b)
		allFree(t, s, "a", "b", "c")
	})
}

func TestMaxHoldOfASet(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		s := memstore.New()
		l := renewWindow(t, as(s), []string{"a", "b"}, dibs.TTL(3*time.Second), dibs.MaxHold(10*time.Second))
		wantIn(t, l)
		begin := time.Now()
		next := renewWindow(t, as(s), []string{"a", "b"})
		<-next.done
		wantIn(t, next)
		within(t, time.Since(begin), 9900*time.Millisecond, 10*time.Second+50*time.Millisecond)
		wantLost(t, l.lease.Err(), dibs.ReasonMaxHold)
		wantLost(t, l.lease.Unlock(), dibs.ReasonMaxHold)
		wantErr(t, next.lease.Err())
	})
}

// MaxHold may be shorter than the TTL: then it is also what a crash costs.
func TestMaxHoldOfASetBelowItsTTL(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		for what, crash := range map[string]func(*faulty){"it hangs": func(*faulty) {}, "it dies": (*faulty).mute} {
			f, s := broken()
			begin := time.Now()
			l := renewWindow(t, as(f), []string{"a", "b"}, dibs.TTL(time.Minute), dibs.MaxHold(5*time.Second))
			wantIn(t, l)
			crash(f)
			<-l.lease.Context().Done()
			if d := time.Since(begin); d < 4900*time.Millisecond || d > 5*time.Second {
				t.Errorf("%s: lost after %v, want 5s", what, d)
			}
			wantErr(t, l.lease.Err(), dibs.ErrLost)
			next := renewWindow(t, s, []string{"a", "b"})
			<-next.done
			wantIn(t, next)
			within(t, time.Since(begin), 4900*time.Millisecond, 5*time.Second+50*time.Millisecond)
			f.heal()
		}
	})
}

// MinHold outlives a crash, also where a hand-off has granted less at first.
func TestMinHoldOfASetThatDies(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		f, s := broken()
		b := mutex(t, s, "b")
		set := renewWindow(t, as(f), []string{"a", "b"}, dibs.TTL(3*time.Second), dibs.MinHold(20*time.Second))
		time.Sleep(time.Minute)
		unlock(t, b)
		wantIn(t, set)
		begin := time.Now()
		time.Sleep(4 * time.Second) // it was renewed since
		f.mute()
		for _, name := range []string{"a", "b"} {
			next := mutex(t, s, name)
			<-next.done
			wantIn(t, next)
			within(t, time.Since(begin), 20*time.Second, 20*time.Second+50*time.Millisecond)
		}
		wantErr(t, set.lease.Unlock(), dibs.ErrLost)
		f.heal()
	})
}

func TestMinHoldOfASet(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		s := memstore.New()
		l := renewWindow(t, as(s), []string{"a", "b"}, dibs.MinHold(10*time.Second))
		wantIn(t, l)
		begin := time.Now()
		unlock(t, l)
		if d := time.Since(begin); d != 0 {
			t.Errorf("Unlock took %v", d)
		}
		for _, name := range []string{"a", "b"} {
			next := mutex(t, s, name)
			<-next.done
			wantIn(t, next)
			within(t, time.Since(begin), 10*time.Second, 10*time.Second+10*time.Millisecond)
		}
	})
}

func TestASetWithoutRenewal(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		f, s := broken()
		l := renewWindow(t, as(f), []string{"a", "b"}, dibs.TTL(10*time.Second), dibs.NoRenew())
		wantIn(t, l)
		begin := time.Now()
		<-l.lease.Context().Done()
		within(t, time.Since(begin), 9700*time.Millisecond, 10*time.Second)
		wantLost(t, l.lease.Err(), dibs.ReasonExpired)
		next := renewWindow(t, s, []string{"a", "b"})
		<-next.done
		wantIn(t, next)
		within(t, time.Since(begin), 10*time.Second, 10*time.Second+10*time.Millisecond)
		wantLost(t, l.lease.Unlock(), dibs.ReasonExpired)
		unlock(t, next)
		allFree(t, s, "a", "b")
	})
}

// One lease, so it begins and ends once.
func TestHooksOfASet(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		s := memstore.New()
		var mu sync.Mutex
		var got []string
		note := func(what, name string) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, what+" "+name)
		}
		waited := time.Duration(-1)
		hooks := dibs.Observe(dibs.Hooks{
			Waiting:  func(w dibs.Waiting) { note("waiting", w.Name) },
			Acquired: func(a dibs.Acquired) { note("acquired", a.Name); waited = a.Waited },
			Released: func(f dibs.Freed) { note("released", f.Name) },
			Lost:     func(l dibs.Lost) { note("lost", l.Name) },
		})
		b := mutex(t, s, "b")
		l := renewWindow(t, as(s), []string{"a", "b", "c"}, hooks)
		time.Sleep(time.Minute)
		unlock(t, b)
		wantIn(t, l)
		unlock(t, l)
		want := []string{"acquired a", "released a"}
		if len(got) != 3 || !strings.HasPrefix(got[0], "waiting ") || !slices.Equal(got[1:], want) {
			t.Errorf("hooks %q, want waiting once, and %q", got, want)
		}
		if waited != time.Minute {
			t.Errorf("waited %v, want 1m", waited)
		}
	})
}

func TestASetOfAMuteStore(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		f, s := broken()
		c := open(t, as(f))
		held, err := c.All("c", "d").Lock(t.Context())
		wantErr(t, err)
		f.mute()
		begin := time.Now()
		_, err = c.All("a", "b").Lock(t.Context())
		wantErr(t, err, dibs.ErrUnavailable)
		within(t, time.Since(begin), 0, time.Second)
		begin = time.Now()
		wantErr(t, held.Unlock(), dibs.ErrUnavailable)
		within(t, time.Since(begin), 0, time.Second) // its names are given back side by side
		f.heal()
		for _, name := range []string{"a", "b", "c", "d"} {
			within(t, eventually(t, s, name), 0, 600*time.Millisecond)
		}
	})
}

// Where a set is taken in one step, one that waits holds nothing. The names that it
// waits for are reserved by its place in the line: to TryLock one is ErrBusy.
func TestAWaitingSetHoldsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		b := mutex(t, s, "b")
		set := renewWindow(t, s, []string{"a", "b"})
		state, err := s.Inspect(t.Context(), "a")
		if err != nil || len(state.Holders) != 0 || state.Waiting != 1 {
			t.Errorf("%+v, %v; want one that waits", state, err)
		}
		busy(t, s, "a")
		a := mutex(t, s, "a")
		wantWaiting(t, set, a)
		unlock(t, b)
		wantIn(t, set)
		wantWaiting(t, a)
		unlock(t, set)
		wantIn(t, a)
	})
}

// What a dead process has left in the queues blocks them for ClaimTTL, not longer.
func TestAWaitingSetDies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := broken()
		b := mutex(t, s, "b")
		dead := renewWindow(t, f, []string{"a", "b"})
		f.mute()
		begin := time.Now()
		a := mutex(t, s, "a")
		<-a.done
		wantIn(t, a)
		within(t, time.Since(begin), 0, driver.WaiterTTL+driver.WaiterTTL/2)
		other := mutex(t, s, "b")
		unlock(t, b)
		wantIn(t, other)
		wantWaiting(t, dead)
		f.heal()
		unlock(t, a, other)
		<-dead.done
		wantIn(t, dead)
	})
}

// A set that was first in all its lines dies: those behind it enter when its place is
// dead, though nobody releases anything.
func TestASetDiesAtTheHead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := broken()
		b := mutex(t, s, "b")
		dead := renewWindow(t, f, []string{"a", "b"})
		set, single := renewWindow(t, s, []string{"b", "a"}), mutex(t, s, "a")
		f.mute()
		begin := time.Now()
		unlock(t, b)
		wantWaiting(t, set, single)
		<-set.done
		wantIn(t, set)
		within(t, time.Since(begin), 0, driver.WaiterTTL+driver.WaiterTTL/2)
		wantWaiting(t, single)
		unlock(t, set)
		wantIn(t, single)
		f.heal()
		unlock(t, single)
		<-dead.done
		wantIn(t, dead)
	})
}

// Where a set is gathered it holds what it has while it waits for the next, renews
// that, whatever its settings, and gives it back when it gives up.
func TestGatheringHoldsWhatItHas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		b := mutex(t, s, "b")
		var group sync.WaitGroup
		c := open(t, apart{s})
		for _, options := range [][]dibs.Option{nil, {dibs.NoRenew()}, {dibs.MaxHold(3 * time.Second)}, {dibs.MinHold(3 * time.Second)}} {
			ctx, cancel := context.WithCancel(t.Context())
			group.Go(func() {
				_, err := c.All("a", "b", "c").Lock(ctx, append(options, dibs.TTL(2*time.Second))...)
				wantErr(t, err, dibs.ErrBusy, context.Canceled)
			})
			time.Sleep(time.Minute)
			busy(t, s, "a")
			free(t, s, "c")
			cancel()
			group.Wait()
			allFree(t, s, "a", "c")
		}
		unlock(t, b)
		free(t, s, "b")
	})
}

// The settings are for the whole, and count from when it is complete.
func TestGatheredLeaseBeginsWhenItIsComplete(t *testing.T) {
	for what, option := range map[string]dibs.Option{"NoRenew": dibs.NoRenew(), "MaxHold": dibs.MaxHold(10 * time.Second), "MinHold": dibs.MinHold(10 * time.Second)} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memstore.New()
				b := mutex(t, s, "b")
				set := renewWindow(t, apart{s}, []string{"a", "b"}, dibs.TTL(10*time.Second), option)
				time.Sleep(time.Minute + 777*time.Millisecond)
				unlock(t, b)
				wantIn(t, set)
				begin := time.Now()
				if what == "MinHold" {
					unlock(t, set)
				}
				for _, name := range []string{"a", "b"} {
					next := mutex(t, s, name)
					<-next.done
					wantIn(t, next)
					within(t, time.Since(begin), 9900*time.Millisecond, 10*time.Second+50*time.Millisecond)
				}
				if what != "MinHold" {
					wantErr(t, set.lease.Unlock(), dibs.ErrLost)
				}
			})
		})
	}
}

// A gathered lease ends with the first of its parts: here the one that a hand-off has
// granted for ClaimTTL, while the other one has the longer TTL.
func TestGatheredLeaseEndsWithItsFirstPart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := broken()
		b := mutex(t, s, "b")
		set := renewWindow(t, apart{f}, []string{"a", "b"}, dibs.TTL(time.Minute))
		rival := mutex(t, s, "b")
		f.mute()
		unlock(t, b)
		wantIn(t, set)
		<-set.lease.Context().Done()
		wantLost(t, set.lease.Err(), dibs.ReasonExpired)
		wantWaiting(t, rival)
		<-rival.done
		wantIn(t, rival)
		f.heal()
		wantLost(t, set.lease.Unlock(), dibs.ReasonExpired)
		allFree(t, s, "a")
	})
}

// A renewal that was on its way when another part was added says nothing of that one.
func TestRenewalOfFewerPartsDoesNotProlongAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := broken()
		b := mutex(t, s, "b")
		set := renewWindow(t, apart{f}, []string{"a", "b"}, dibs.TTL(time.Minute))
		rival := mutex(t, s, "b")
		renewing := make(chan struct{})
		f.set(func(f *faulty) {
			f.extend = func(ctx context.Context, holds []driver.ExtendRequest) []error {
				f.mute() // all that come after this one
				if len(holds) != 1 {
					t.Errorf("renews %+v, want one part", holds)
				}
				close(renewing)
				time.Sleep(500 * time.Millisecond)
				return f.Store.Extend(ctx, holds)
			}
		})
		<-renewing
		unlock(t, b)
		wantIn(t, set)
		<-set.lease.Context().Done()
		wantLost(t, set.lease.Err(), dibs.ReasonExpired)
		wantWaiting(t, rival)
		<-rival.done
		wantIn(t, rival)
		f.heal()
	})
}

// A part that is lost while the next one is waited for: there is no lease, and
// nothing is left of it.
func TestAPartIsLostInGathering(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := mutex(t, s, "c")
		set := renewWindow(t, apart{s}, []string{"a", "b", "c"}, dibs.TTL(3*time.Second))
		state, err := s.Inspect(t.Context(), "a")
		wantErr(t, err)
		broken, err := open(t, s).Revoke(t.Context(), "a", state.Holders[0].Fence)
		if !broken || err != nil {
			t.Fatal(broken, err)
		}
		other := mutex(t, s, "a")
		wantIn(t, other)
		unlock(t, c)
		time.Sleep(time.Minute)
		if set.over() && set.err == nil {
			t.Fatalf("it has %q, which another one holds: %v", "a", set.lease.Err())
		}
		wantErr(t, other.lease.Err())
		unlock(t, other)
		<-set.done
		if set.err == nil {
			unlock(t, set)
		} else {
			wantErr(t, set.err, dibs.ErrLost)
		}
		allFree(t, s, "a", "b", "c")
	})
}

// TryLock tries once, whatever the options of the level above say.
func TestSetTryLockTriesOnce(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		s := memstore.New()
		mutex(t, s, "b")
		begin := time.Now()
		_, err := open(t, as(s), dibs.Attempts(5, time.Second)).All("a", "b").TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		within(t, time.Since(begin), 0, 0)
	})
}

// A context that ends between two attempts is the cause of the error.
func TestSetCancelledBetweenAttempts(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		s := memstore.New()
		mutex(t, s, "b")
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		_, err := open(t, as(s)).All("a", "b").Lock(ctx, dibs.Attempts(5, time.Second))
		wantErr(t, err, dibs.ErrBusy, context.DeadlineExceeded)
	})
}

// Close does not wait for the next attempt.
func TestSetClosedBetweenAttempts(t *testing.T) {
	bothWays(t, func(t *testing.T, as way) {
		s := memstore.New()
		mutex(t, s, "b")
		c := open(t, as(s))
		x := queue(func() (*dibs.Lease, error) { return c.All("a", "b").Lock(t.Context(), dibs.Attempts(5, time.Hour)) })
		wantErr(t, c.Close())
		begin := time.Now()
		<-x.done
		wantErr(t, x.err, dibs.ErrClosed)
		within(t, time.Since(begin), 0, 0)
	})
}

// A set that asks again while it holds some of its names leaves no place there.
func TestSetLeavesNoPlaceWhereItHeld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		x := driver.AcquireRequest{Name: "a", With: []string{"b"}, Token: "x", Client: "x", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true}
		y := driver.AcquireRequest{Name: "b", Token: "y", Client: "y", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true}
		ask := func(c driver.AcquireRequest, held bool) uint64 {
			t.Helper()
			a, err := s.Acquire(t.Context(), c)
			if err != nil || a.Held != held {
				t.Fatalf("%s: %+v, %v; want held: %v", c.Token, a, err, held)
			}
			return a.Fence
		}
		fence := ask(x, true) // its reply is lost
		if broken, err := s.Revoke(t.Context(), "b", fence); !broken || err != nil {
			t.Fatalf("break: %v, %v", broken, err)
		}
		ask(y, true)
		ask(x, false) // waits, though it holds a
		if freed, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "b", Token: "y"}); !freed || err != nil {
			t.Fatalf("release: %v, %v", freed, err)
		}
		ask(x, true)
		for _, n := range []string{"a", "b"} {
			st, err := s.Inspect(t.Context(), n)
			wantErr(t, err)
			if st.Waiting > 0 {
				t.Errorf("%d places left in the queue of %s", st.Waiting, n)
			}
		}
	})
}

// What undoes one attempt does not undo the next one, under the same token.
func TestSetOfSeveralStepsTriesAgainWithItsToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, apart{s}), open(t, s)
		for range 20 {
			b := lock(t, other, "b")
			time.AfterFunc(5*time.Millisecond, func() { wantErr(t, b.Unlock()) })
			l, err := c.All("a", "b").Lock(t.Context(), dibs.Token("request-1"), dibs.Attempts(10, time.Millisecond))
			wantErr(t, err)
			time.Sleep(time.Second)
			for _, name := range []string{"a", "b"} {
				if state, err := s.Inspect(t.Context(), name); err != nil || len(state.Holders) != 1 || state.Holders[0].Token != "request-1" {
					t.Fatalf("%q is held by %+v, %v", name, state.Holders, err)
				}
			}
			wantErr(t, l.Unlock())
		}
	})
}

// The hook tells no loss of a lease that nobody was given.
func TestSetTellsNoLossBeforeItBegins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := mutex(t, s, "c")
		lost, acquired := 0, 0
		set := renewWindow(t, apart{s}, []string{"a", "c"}, dibs.Observe(dibs.Hooks{
			Lost:     func(dibs.Lost) { lost++ },
			Acquired: func(dibs.Acquired) { acquired++ },
		}))
		state, err := s.Inspect(t.Context(), "a")
		wantErr(t, err)
		if broken, err := s.Revoke(t.Context(), "a", state.Holders[0].Fence); !broken || err != nil {
			t.Fatalf("break: %v, %v", broken, err)
		}
		unlock(t, c)
		<-set.done
		wantIn(t, set)
		if lost != 0 || acquired != 1 {
			t.Errorf("%d told as lost, %d as acquired, want 0 and 1", lost, acquired)
		}
	})
}
