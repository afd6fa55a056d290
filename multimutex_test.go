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

// A splitStore acquires the names separately, like a cluster in which each name has its own slot.
type splitStore struct{ *driver.Full }

func (splitStore) Groups(names []string) [][]string {
	names = slices.Sorted(slices.Values(names))
	groups := make([][]string, len(names))
	for i, name := range names {
		groups[i] = []string{name}
	}
	return groups
}

// A storeWrapper makes a store acquire several names in one step, or stepwise.
type storeWrapper func(driver.Store) driver.Store

// bothModes runs a test in virtual time with a store that acquires all names in a single step, and
// with a store that acquires them stepwise.
func bothModes(t *testing.T, test func(t *testing.T, wrap storeWrapper)) {
	t.Helper()
	for what, wrap := range map[string]storeWrapper{
		"in one step": func(s driver.Store) driver.Store { return s },
		"one by one":  func(s driver.Store) driver.Store { return splitStore{driver.Complete(s)} },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) { test(t, wrap) })
		})
	}
}

// multiMutex queues for names in its own client.
func multiMutex(t *testing.T, s driver.Store, names []string, options ...dibs.Option) *lockCall {
	multi := open(t, s).All(names)
	return queue(func() (*dibs.Lease, error) { return multi.Lock(t.Context(), options...) })
}

// mutex queues for a name in its own client.
func mutex(t *testing.T, s driver.Store, name string, options ...dibs.Option) *lockCall {
	m := open(t, s).Mutex(name)
	return queue(func() (*dibs.Lease, error) { return m.Lock(t.Context(), options...) })
}

// wantBusy requires that each name is unavailable.
func wantBusy(t *testing.T, s driver.Store, names ...string) {
	t.Helper()
	c := open(t, s)
	for _, name := range names {
		if _, err := c.Mutex(name).TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Fatalf("%q: error %v, want busy", name, err)
		}
	}
}

// wantAllFree requires that nothing is left for any name.
func wantAllFree(t *testing.T, s driver.Store, names ...string) {
	t.Helper()
	synctest.Wait()
	for _, name := range names {
		wantFree(t, s, name)
	}
}

func TestAllOrNone(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		multi := open(t, wrap(s)).All([]string{"a", "b", "c"})
		l, err := multi.TryLock(t.Context())
		wantErr(t, err)
		wantBusy(t, s, "a", "b", "c")
		if l.Name() != "a" {
			t.Errorf("name %q, want the first of all", l.Name())
		}
		wantErr(t, l.Unlock())
		wantAllFree(t, s, "a", "b", "c")
		for _, name := range []string{"a", "b", "c"} {
			one := mutex(t, s, name)
			_, err := multi.TryLock(t.Context())
			wantErr(t, err, dibs.ErrBusy)
			var is *dibs.BusyError
			if !errors.As(err, &is) || is.Name != name || is.Holder != one.lease.Token() {
				t.Errorf("%v, want busy: %q held by %s", err, name, one.lease.Token())
			}
			unlock(t, one)
			wantAllFree(t, s, "a", "b", "c")
		}
	})
}

func TestMultiMutexIsRenewedAsAWhole(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		l := multiMutex(t, wrap(s), []string{"a", "b", "c"}, dibs.TTL(2*time.Second))
		wantHeld(t, l)
		time.Sleep(time.Hour)
		wantErr(t, l.lease.Err())
		wantBusy(t, s, "a", "b", "c")
		wantErr(t, l.lease.Extend(t.Context(), time.Minute))
		state, err := s.Inspect(t.Context(), "c")
		if err != nil || state.Holders[0].Remaining != time.Minute {
			t.Errorf("extended to a minute: %+v, %v", state, err)
		}
		unlock(t, l)
		wantAllFree(t, s, "a", "b", "c")
	})
}

// MultiMutexes with common names, in any order, exclude each other, end, and leave nothing, even if
// some give up.
func TestOverlappingMultiMutexes(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		var mu sync.Mutex
		holding, runs := make(map[string]int), 0
		var group sync.WaitGroup
		seed := rand.Uint64()
		for i := range 50 {
			c := open(t, wrap(s))
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
					l, err := c.All(names).Lock(ctx)
					cause := context.Cause(ctx)
					cancel()
					if err != nil { // or ErrUnavailable, if the context ends during a request
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
			waitUntilFree(t, s, fmt.Sprintf("n%d", i))
		}
	})
}

func TestMultiMutexCountsANameOnce(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		names := []string{"b", "a", "b", "a", "a"}
		multi := open(t, wrap(s)).All(names)
		names[0] = "changed"
		l, err := multi.Lock(t.Context())
		wantErr(t, err)
		if l.Name() != "a" || l.FenceOf("b") == 0 || l.FenceOf("changed") != 0 {
			t.Errorf("%q, fences %d and %d", l.Name(), l.FenceOf("b"), l.FenceOf("changed"))
		}
		wantErr(t, l.Unlock())
		wantAllFree(t, s, "a", "b")

		wantErr(t, open(t, wrap(s)).All(slices.Repeat([]string{"a"}, driver.MaxNames+1)).Do(t.Context(), func(context.Context) error {
			wantBusy(t, s, "a")
			return nil
		}))
		wantAllFree(t, s, "a")
	})
}

func TestBadMultiMutex(t *testing.T) {
	var many []string
	for i := range driver.MaxNames + 1 {
		many = append(many, fmt.Sprint(i))
	}
	for _, s := range []driver.Store{unusedStore{t}, splitStore{driver.Complete(unusedStore{t})}} {
		c := open(t, s)
		for what, multi := range map[string]*dibs.MultiMutex{
			"no name":       c.All(nil),
			"many names":    c.All(many),
			"an empty name": c.All([]string{"a", "", "b"}),
			"a long name":   c.All([]string{"a", strings.Repeat("n", driver.MaxName+1)}),
			"not UTF-8":     c.All([]string{"a", "\xff"}),
			"a bad default": open(t, s, dibs.TTL(0)).All([]string{"a", "b"}),
		} {
			for _, lock := range []func(context.Context, ...dibs.Option) (*dibs.Lease, error){multi.Lock, multi.TryLock} {
				if l, err := lock(t.Context()); l != nil || !errors.Is(err, dibs.ErrInvalid) {
					t.Errorf("%s: %v, %v", what, l, err)
				}
			}
			wantErr(t, multi.Do(t.Context(), func(context.Context) error { t.Error("fn was called"); return nil }), dibs.ErrInvalid)
		}
		_, err := c.All([]string{"a", "b"}).Lock(t.Context(), dibs.MaxHold(-1))
		wantErr(t, err, dibs.ErrInvalid)
	}
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		wantErr(t, open(t, wrap(memstore.New())).All(many[1:]).Do(t.Context(), func(context.Context) error { return nil }))
	})
}

func TestFenceOfEachName(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		c := open(t, wrap(s))
		before := lock(t, c, "b")
		wantErr(t, before.Unlock())
		l, err := c.All([]string{"a", "b"}).Lock(t.Context())
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
		// The innermost lease on the name counts, even if another lease is between.
		wantErr(t, c.Mutex("c").Do(l.Context(), func(ctx context.Context) error {
			if a, b := fenceOf(t, ctx, "a"), fenceOf(t, ctx, "b"); a != l.FenceOf("a") || b != l.FenceOf("b") {
				t.Errorf("fences %d and %d in the context, want %d and %d", a, b, l.FenceOf("a"), l.FenceOf("b"))
			}
			if fenceOf(t, ctx, "c") != fenceIn(t, ctx) || fenceIn(t, ctx) <= l.FenceOf("b") {
				t.Errorf("fence of c %d, %d", fenceOf(t, ctx, "c"), fenceIn(t, ctx))
			}
			_, err := dibs.FenceOf(ctx, "d")
			wantErr(t, err, dibs.ErrInvalid)
			return nil
		}))
		_, err = dibs.FenceOf(t.Context(), "a")
		wantErr(t, err, dibs.ErrInvalid)
		_, err = dibs.Fence(l.Context()) // each name has its own fence
		wantErr(t, err, dibs.ErrInvalid)
		wantErr(t, l.Unlock())
	})
}

// A lease on several names is lost if a name is lost; Unlock releases the others.
func TestMultiMutexIsLostWithOneName(t *testing.T) {
	for _, name := range []string{"a", "b", "c"} {
		bothModes(t, func(t *testing.T, wrap storeWrapper) {
			s := memstore.New()
			c := open(t, wrap(s))
			l, err := c.All([]string{"a", "b", "c"}).Lock(t.Context(), dibs.TTL(3*time.Second))
			wantErr(t, err)
			ctx := l.Context()
			synctest.Wait() // until it receives events
			revoked, err := open(t, s).Revoke(t.Context(), name, dibs.Holder{Fence: l.FenceOf(name)}, "")
			if !revoked || err != nil {
				t.Fatal(revoked, err)
			}
			wantLost(t, l.Err(), dibs.ReasonRevoked)
			wantLost(t, context.Cause(ctx), dibs.ReasonRevoked)
			wantFree(t, s, name)
			wantLost(t, l.Unlock(), dibs.ReasonRevoked)
			wantAllFree(t, s, "a", "b", "c")

			// The same without a notification: at the next renewal.
			l, err = c.All([]string{"a", "b", "c"}).Lock(t.Context(), dibs.TTL(3*time.Second))
			wantErr(t, err)
			begin := time.Now()
			_, err = s.Release(t.Context(), driver.ReleaseRequest{Name: name, Token: string(l.Token())})
			wantErr(t, err)
			<-l.Context().Done()
			wantWithin(t, time.Since(begin), 0, time.Second)
			wantLost(t, l.Err(), dibs.ReasonMissing)
			var lost *dibs.LostError
			if errors.As(l.Err(), &lost); lost.Name != name {
				t.Errorf("%v, want %q", lost, name)
			}
			wantLost(t, l.Unlock(), dibs.ReasonMissing)
			wantAllFree(t, s, "a", "b", "c")

			// Unlock detects the loss, too, if it is first.
			l, err = c.All([]string{"a", "b", "c"}).Lock(t.Context())
			wantErr(t, err)
			_, err = s.Release(t.Context(), driver.ReleaseRequest{Name: name, Token: string(l.Token())})
			wantErr(t, err)
			wantLost(t, l.Unlock(), dibs.ReasonMissing)
			wantAllFree(t, s, "a", "b", "c")
		})
	}
}

func TestReentrantMultiMutex(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		c := open(t, wrap(s))
		wantErr(t, c.Mutex("b").Do(t.Context(), func(ctx context.Context) error {
			for _, option := range []dibs.Option{{}, dibs.Reentrant()} { // some names are not enough
				_, err := c.All([]string{"a", "b"}).Lock(ctx, option)
				wantErr(t, err, dibs.ErrReentrant)
			}
			wantFree(t, s, "a")
			return c.All([]string{"b"}).Do(ctx, func(context.Context) error { return nil }, dibs.Reentrant())
		}))
		wantErr(t, c.All([]string{"a", "b", "c"}).Do(t.Context(), func(ctx context.Context) error {
			for _, take := range []func(context.Context, ...dibs.Option) (*dibs.Lease, error){
				c.All([]string{"c", "a"}).Lock, c.Mutex("b").Lock, c.RWMutex("c").Reader().Lock,
			} {
				_, err := take(ctx)
				wantErr(t, err, dibs.ErrReentrant)
				l, err := take(ctx, dibs.Reentrant())
				wantErr(t, err)
				wantErr(t, l.Unlock())
			}
			_, err := c.All([]string{"c", "d"}).Lock(ctx, dibs.Reentrant())
			wantErr(t, err, dibs.ErrReentrant)
			wantBusy(t, s, "a", "b", "c")
			return nil
		}))
		wantAllFree(t, s, "a", "b", "c", "d")
	})
}

func TestMultiMutexWaits(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		a, b := mutex(t, s, "a"), mutex(t, s, "b")
		multi := multiMutex(t, wrap(s), []string{"a", "b", "c"})
		behind := multiMutex(t, wrap(s), []string{"c", "a"})
		time.Sleep(time.Minute)
		unlock(t, a)
		wantWaiting(t, multi, behind)
		time.Sleep(time.Minute)
		unlock(t, b)
		released := time.Now()
		wantHeld(t, multi)
		if d := time.Since(released); d != 0 {
			t.Errorf("entered %v after the release", d)
		}
		wantWaiting(t, behind)
		unlock(t, multi)
		wantHeld(t, behind)
		unlock(t, behind)
		wantAllFree(t, s, "a", "b", "c")
	})
}

func TestMultiMutexGivesUp(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		b := mutex(t, s, "b")
		multi := open(t, wrap(s)).All([]string{"a", "b", "c"})
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
			_, err := multi.Lock(t.Context(), give.options...)
			var is *dibs.BusyError
			if !errors.As(err, &is) || is.Name != "b" || is.Holder != b.lease.Token() || is.Cause != nil {
				t.Errorf("%s: %v, want busy: \"b\" held by %s", what, err, b.lease.Token())
			}
			if d := time.Since(begin); d != give.took {
				t.Errorf("%s: gave up after %v, want %v", what, d, give.took)
			}
			wantAllFree(t, s, "a", "c")
			if state, _ := s.Inspect(t.Context(), "b"); state.Waiting != 0 {
				t.Errorf("%s: queue entry left", what)
			}
		}
		why := errors.New("the user left")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(why) })
		_, err := multi.Lock(ctx)
		wantErr(t, err, dibs.ErrBusy, why)
		wantAllFree(t, s, "a", "c")
		_, err = multi.Lock(ctx)
		wantErr(t, err, why)

		// Attempts that continue until the name is free.
		time.AfterFunc(950*time.Millisecond, func() { unlock(t, b) })
		begin := time.Now()
		l, err := multi.Lock(t.Context(), dibs.Attempts(20, 100*time.Millisecond))
		wantErr(t, err)
		if d := time.Since(begin); d != time.Second {
			t.Errorf("got it after %v, want the 11th attempt, after 1s", d)
		}
		wantErr(t, l.Unlock())
		wantAllFree(t, s, "a", "b", "c")
	})
}

// Wait applies to all names together, not to each name.
func TestMultiMutexWait(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		a, b := mutex(t, s, "a"), mutex(t, s, "b")
		time.AfterFunc(4*time.Second, func() { unlock(t, a) })
		begin := time.Now()
		_, err := open(t, wrap(s)).All([]string{"a", "b", "c"}).Lock(t.Context(), dibs.Wait(7*time.Second))
		wantErr(t, err, dibs.ErrBusy)
		if d := time.Since(begin); d != 7*time.Second {
			t.Errorf("gave up after %v, want 7s", d)
		}
		wantAllFree(t, s, "a", "c")
		unlock(t, b)
		wantFree(t, s, "b")
	})
}

// Close ends the wait, and leaves nothing.
func TestCloseWhileMultiMutexWaits(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		b := mutex(t, s, "b")
		c := open(t, wrap(s))
		multi := queue(func() (*dibs.Lease, error) { return c.All([]string{"a", "b", "c"}).Lock(t.Context()) })
		wantWaiting(t, multi)
		wantErr(t, c.Close())
		if !multi.returned() {
			t.Fatal("the call still waits")
		}
		wantErr(t, multi.err, dibs.ErrClosed)
		unlock(t, b)
		wantAllFree(t, s, "a", "b", "c")
	})
}

func TestMultiMutexMaxHold(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		l := multiMutex(t, wrap(s), []string{"a", "b"}, dibs.TTL(3*time.Second), dibs.MaxHold(10*time.Second))
		wantHeld(t, l)
		begin := time.Now()
		next := multiMutex(t, wrap(s), []string{"a", "b"})
		<-next.done
		wantHeld(t, next)
		wantWithin(t, time.Since(begin), 9900*time.Millisecond, 10*time.Second+50*time.Millisecond)
		wantLost(t, l.lease.Err(), dibs.ReasonMaxHold)
		wantLost(t, l.lease.Unlock(), dibs.ReasonMaxHold)
		wantErr(t, next.lease.Err())
	})
}

// If MaxHold is shorter than the TTL, a crash blocks the names for MaxHold.
func TestMultiMutexMaxHoldBelowTTL(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		for what, crash := range map[string]func(*faulty){"it hangs": func(*faulty) {}, "it dies": (*faulty).hangAll} {
			f, s := newFaulty()
			begin := time.Now()
			l := multiMutex(t, wrap(f), []string{"a", "b"}, dibs.TTL(time.Minute), dibs.MaxHold(5*time.Second))
			wantHeld(t, l)
			crash(f)
			<-l.lease.Context().Done()
			if d := time.Since(begin); d < 4900*time.Millisecond || d > 5*time.Second {
				t.Errorf("%s: lost after %v, want 5s", what, d)
			}
			wantErr(t, l.lease.Err(), dibs.ErrLost)
			next := multiMutex(t, s, []string{"a", "b"})
			<-next.done
			wantHeld(t, next)
			wantWithin(t, time.Since(begin), 4900*time.Millisecond, 5*time.Second+50*time.Millisecond)
			f.heal()
		}
	})
}

// MinHold outlives a crash, even after a hand-off that granted a shorter TTL.
func TestMultiMutexMinHoldAfterCrash(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		f, s := newFaulty()
		b := mutex(t, s, "b")
		multi := multiMutex(t, wrap(f), []string{"a", "b"}, dibs.TTL(3*time.Second), dibs.MinHold(20*time.Second))
		time.Sleep(time.Minute)
		unlock(t, b)
		wantHeld(t, multi)
		begin := time.Now()
		time.Sleep(4 * time.Second) // it was renewed in this time
		f.hangAll()
		for _, name := range []string{"a", "b"} {
			next := mutex(t, s, name)
			<-next.done
			wantHeld(t, next)
			wantWithin(t, time.Since(begin), 20*time.Second, 20*time.Second+50*time.Millisecond)
		}
		wantErr(t, multi.lease.Unlock(), dibs.ErrLost)
		f.heal()
	})
}

func TestMultiMutexMinHold(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		l := multiMutex(t, wrap(s), []string{"a", "b"}, dibs.MinHold(10*time.Second))
		wantHeld(t, l)
		begin := time.Now()
		unlock(t, l)
		if d := time.Since(begin); d != 0 {
			t.Errorf("Unlock took %v", d)
		}
		for _, name := range []string{"a", "b"} {
			next := mutex(t, s, name)
			<-next.done
			wantHeld(t, next)
			wantWithin(t, time.Since(begin), 10*time.Second, 10*time.Second+10*time.Millisecond)
		}
	})
}

func TestMultiMutexWithoutRenewal(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		f, s := newFaulty()
		l := multiMutex(t, wrap(f), []string{"a", "b"}, dibs.TTL(10*time.Second), dibs.NoRenew())
		wantHeld(t, l)
		begin := time.Now()
		<-l.lease.Context().Done()
		wantWithin(t, time.Since(begin), 9700*time.Millisecond, 10*time.Second)
		wantLost(t, l.lease.Err(), dibs.ReasonExpired)
		next := multiMutex(t, s, []string{"a", "b"})
		<-next.done
		wantHeld(t, next)
		wantWithin(t, time.Since(begin), 10*time.Second, 10*time.Second+10*time.Millisecond)
		wantLost(t, l.lease.Unlock(), dibs.ReasonExpired)
		unlock(t, next)
		wantAllFree(t, s, "a", "b")
	})
}

// A single lease covers all names: it begins and ends once.
func TestMultiMutexHooks(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		var mu sync.Mutex
		var got []string
		note := func(what, name string) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, what+" "+name)
		}
		var end dibs.AcquireEnd
		const wait = 61 * time.Second // not a multiple of the heartbeat interval
		hooks := dibs.Observe(dibs.Hooks{
			Queued:     func(_ context.Context, w dibs.Queued) { note("waiting", w.Name()) },
			AcquireEnd: func(_ context.Context, a dibs.AcquireEnd) { note("acquired", a.Name()); end = a },
			Released:   func(_ context.Context, f dibs.Released) { note("released", f.Name()) },
			Lost:       func(_ context.Context, l dibs.Lost) { note("lost", l.Name()) },
		})
		b := mutex(t, s, "b")
		l := multiMutex(t, wrap(s), []string{"a", "b", "c"}, hooks)
		time.Sleep(wait)
		unlock(t, b)
		wantHeld(t, l)
		unlock(t, l)
		want := []string{"acquired a", "released a"}
		if len(got) != 3 || !strings.HasPrefix(got[0], "waiting ") || !slices.Equal(got[1:], want) {
			t.Errorf("hooks %q, want waiting once, and %q", got, want)
		}
		if end.Waited != wait {
			t.Errorf("waited %v, want %v", end.Waited, wait)
		}
		stepwise := len(driver.Complete(wrap(s)).Groups([]string{"a", "b"})) > 1
		if end.Notified != stepwise { // the part b; a one-step waiter is notified to retry
			t.Errorf("notified: %v, want %v", end.Notified, stepwise)
		}
		if end.Fence == 0 || end.Fence != end.FirstFence || end.TTL != 30*time.Second {
			t.Errorf("fence %d, the first is %d, TTL %v", end.Fence, end.FirstFence, end.TTL)
		}
	})
}

// An attempt gets no answer, although the store granted the lock. The next attempt repeats the
// request, and so finds that it holds the lock.
func TestNextAttemptRepeatsTheRequest(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		f, good := newFaulty()
		begin := time.Now()
		f.set(func(f *faulty) {
			f.acquire = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				reply, err := good.Acquire(ctx, r)
				if time.Since(begin) < 2*time.Second {
					return driver.AcquireReply{}, errReset
				}
				return reply, err
			}
			f.cancel = func(ctx context.Context, r driver.AcquireRequest) error {
				t.Error("a cancel was sent between two attempts")
				return good.Cancel(ctx, r)
			}
		})
		l, err := open(t, wrap(f)).All([]string{"a", "b"}).Lock(t.Context(), dibs.Attempts(3, time.Second))
		wantErr(t, err)
		f.set(func(f *faulty) { f.cancel = nil })
		wantErr(t, l.Unlock())
	})
}

func TestMultiMutexWhileStoreHangs(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		f, s := newFaulty()
		c := open(t, wrap(f))
		held, err := c.All([]string{"c", "d"}).Lock(t.Context())
		wantErr(t, err)
		f.hangAll()
		begin := time.Now()
		_, err = c.All([]string{"a", "b"}).Lock(t.Context())
		wantErr(t, err, dibs.ErrUnavailable)
		wantWithin(t, time.Since(begin), 0, time.Second)
		begin = time.Now()
		wantErr(t, held.Unlock(), dibs.ErrUnavailable)
		wantWithin(t, time.Since(begin), 0, time.Second) // its names are released concurrently
		f.heal()
		for _, name := range []string{"a", "b", "c", "d"} {
			wantWithin(t, waitUntilFree(t, s, name), 0, 600*time.Millisecond)
		}
	})
}

// In one-step mode, a waiting MultiMutex holds nothing. Its queue entry reserves the names: TryLock
// on any of them returns ErrBusy.
func TestWaitingMultiMutexHoldsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		b := mutex(t, s, "b")
		multi := multiMutex(t, s, []string{"a", "b"})
		state, err := s.Inspect(t.Context(), "a")
		if err != nil || len(state.Holders) != 0 || state.Waiting != 1 {
			t.Errorf("%+v, %v; want one waiter", state, err)
		}
		wantBusy(t, s, "a")
		a := mutex(t, s, "a")
		wantWaiting(t, multi, a)
		unlock(t, b)
		wantHeld(t, multi)
		wantWaiting(t, a)
		unlock(t, multi)
		wantHeld(t, a)
	})
}

// A crashed process's queue entries block others for at most WaiterTTL.
func TestWaitingMultiMutexCrashes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		b := mutex(t, s, "b")
		crashed := multiMutex(t, f, []string{"a", "b"})
		f.hangAll()
		begin := time.Now()
		a := mutex(t, s, "a")
		<-a.done
		wantHeld(t, a)
		wantWithin(t, time.Since(begin), 0, driver.WaiterTTL+driver.WaiterTTL/2)
		other := mutex(t, s, "b")
		begin = time.Now()
		unlock(t, b)
		<-other.done // nobody requested b meanwhile, so the store gives the crashed waiter time to answer
		wantHeld(t, other)
		wantWithin(t, time.Since(begin), 0, driver.WaiterTTL/2)
		wantWaiting(t, crashed)
		f.heal()
		unlock(t, a, other)
		<-crashed.done
		wantHeld(t, crashed)
	})
}

// A MultiMutex at the head of all its queues crashes. The waiters behind it enter when its queue
// entry expires, though nothing is released.
func TestMultiMutexCrashesAtTheHead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		b := mutex(t, s, "b")
		crashed := multiMutex(t, f, []string{"a", "b"})
		multi, single := multiMutex(t, s, []string{"b", "a"}), mutex(t, s, "a")
		f.hangAll()
		begin := time.Now()
		unlock(t, b)
		wantWaiting(t, multi, single)
		<-multi.done
		wantHeld(t, multi)
		wantWithin(t, time.Since(begin), 0, driver.WaiterTTL+driver.WaiterTTL/2)
		wantWaiting(t, single)
		unlock(t, multi)
		wantHeld(t, single)
		f.heal()
		unlock(t, single)
		<-crashed.done
		wantHeld(t, crashed)
	})
}

// In stepwise mode, a MultiMutex holds its first names while it waits for the next. It
// renews them whatever its options are, and releases them when it gives up.
func TestStepwiseAcquireHoldsItsNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		b := mutex(t, s, "b")
		var group sync.WaitGroup
		c := open(t, splitStore{driver.Complete(s)})
		for _, options := range [][]dibs.Option{nil, {dibs.NoRenew()}, {dibs.MaxHold(3 * time.Second)}, {dibs.MinHold(3 * time.Second)}} {
			ctx, cancel := context.WithCancel(t.Context())
			group.Go(func() {
				_, err := c.All([]string{"a", "b", "c"}).Lock(ctx, append(options, dibs.TTL(2*time.Second))...)
				wantErr(t, err, dibs.ErrBusy, context.Canceled)
			})
			time.Sleep(time.Minute)
			wantBusy(t, s, "a")
			wantFree(t, s, "c")
			cancel()
			group.Wait()
			wantAllFree(t, s, "a", "c")
		}
		unlock(t, b)
		wantFree(t, s, "b")
	})
}

// The options apply to the whole lease, and count from its completion.
func TestStepwiseLeaseBeginsWhenComplete(t *testing.T) {
	for what, option := range map[string]dibs.Option{"NoRenew": dibs.NoRenew(), "MaxHold": dibs.MaxHold(10 * time.Second), "MinHold": dibs.MinHold(10 * time.Second)} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memstore.New()
				b := mutex(t, s, "b")
				multi := multiMutex(t, splitStore{driver.Complete(s)}, []string{"a", "b"}, dibs.TTL(10*time.Second), option)
				time.Sleep(time.Minute + 777*time.Millisecond)
				unlock(t, b)
				wantHeld(t, multi)
				begin := time.Now()
				if what == "MinHold" {
					unlock(t, multi)
				}
				for _, name := range []string{"a", "b"} {
					next := mutex(t, s, name)
					<-next.done
					wantHeld(t, next)
					wantWithin(t, time.Since(begin), 9900*time.Millisecond, 10*time.Second+50*time.Millisecond)
				}
				if what != "MinHold" {
					wantErr(t, multi.lease.Unlock(), dibs.ErrLost)
				}
			})
		})
	}
}

// A stepwise lease ends with its first part: here the part with the hand-off TTL, while the other
// has a longer TTL.
func TestStepwiseLeaseEndsWithItsFirstPart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		b := mutex(t, s, "b")
		multi := multiMutex(t, splitStore{driver.Complete(f)}, []string{"a", "b"}, dibs.TTL(time.Minute))
		rival := mutex(t, s, "b")
		f.hangAll()
		unlock(t, b)
		wantHeld(t, multi)
		<-multi.lease.Context().Done()
		wantLost(t, multi.lease.Err(), dibs.ReasonExpired)
		wantWaiting(t, rival)
		<-rival.done
		wantHeld(t, rival)
		f.heal()
		wantLost(t, multi.lease.Unlock(), dibs.ReasonExpired)
		wantAllFree(t, s, "a")
	})
}

// A renewal sent before another part was added does not extend that part.
func TestRenewalOfFewerPartsDoesNotExtendAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		b := mutex(t, s, "b")
		multi := multiMutex(t, splitStore{driver.Complete(f)}, []string{"a", "b"}, dibs.TTL(time.Minute))
		rival := mutex(t, s, "b")
		renewing := make(chan struct{})
		f.set(func(f *faulty) {
			f.extend = func(ctx context.Context, requests []driver.ExtendRequest) []error {
				f.hangAll() // all renewals after it hang
				if len(requests) != 1 {
					t.Errorf("renews %+v, want one part", requests)
				}
				close(renewing)
				time.Sleep(500 * time.Millisecond)
				return f.Store.Extend(ctx, requests)
			}
		})
		<-renewing
		unlock(t, b)
		wantHeld(t, multi)
		<-multi.lease.Context().Done()
		wantLost(t, multi.lease.Err(), dibs.ReasonExpired)
		wantWaiting(t, rival)
		<-rival.done
		wantHeld(t, rival)
		f.heal()
	})
}

// A part is lost while the call waits for the next part: there is no lease, and nothing is left
// behind.
func TestPartLostInStepwiseAcquire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := mutex(t, s, "c")
		multi := multiMutex(t, splitStore{driver.Complete(s)}, []string{"a", "b", "c"}, dibs.TTL(3*time.Second))
		state, err := s.Inspect(t.Context(), "a")
		wantErr(t, err)
		revoked, err := open(t, s).Revoke(t.Context(), "a", dibs.Holder{Fence: state.Holders[0].Fence}, "")
		if !revoked || err != nil {
			t.Fatal(revoked, err)
		}
		other := mutex(t, s, "a")
		wantHeld(t, other)
		unlock(t, c)
		time.Sleep(time.Minute)
		if multi.returned() && multi.err == nil {
			t.Fatalf("lease on %q, which another client holds: %v", "a", multi.lease.Err())
		}
		wantErr(t, other.lease.Err())
		unlock(t, other)
		<-multi.done
		if multi.err == nil {
			unlock(t, multi)
		} else {
			wantErr(t, multi.err, dibs.ErrLost)
		}
		wantAllFree(t, s, "a", "b", "c")
	})
}

// TryLock tries once, whatever the outer level's options are.
func TestMultiMutexTryLockTriesOnce(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		mutex(t, s, "b")
		begin := time.Now()
		_, err := open(t, wrap(s), dibs.Attempts(5, time.Second)).All([]string{"a", "b"}).TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		wantWithin(t, time.Since(begin), 0, 0)
	})
}

// A context that ends between two attempts is the error's cause.
func TestMultiMutexCancelledBetweenAttempts(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		mutex(t, s, "b")
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		_, err := open(t, wrap(s)).All([]string{"a", "b"}).Lock(ctx, dibs.Attempts(5, time.Second))
		wantErr(t, err, dibs.ErrBusy, context.DeadlineExceeded)
	})
}

// Close does not wait for the next attempt.
func TestMultiMutexClosedBetweenAttempts(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		mutex(t, s, "b")
		c := open(t, wrap(s))
		x := queue(func() (*dibs.Lease, error) {
			return c.All([]string{"a", "b"}).Lock(t.Context(), dibs.Attempts(5, time.Hour))
		})
		wantErr(t, c.Close())
		begin := time.Now()
		<-x.done
		wantErr(t, x.err, dibs.ErrClosed)
		wantWithin(t, time.Since(begin), 0, 0)
	})
}

// A MultiMutex that retries while it holds some names leaves no queue entries there.
func TestMultiMutexLeavesNoQueueEntry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		x := driver.AcquireRequest{Name: "a", With: []string{"b"}, Token: "x", Client: "x", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true}
		y := driver.AcquireRequest{Name: "b", Token: "y", Client: "y", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true}
		ask := func(r driver.AcquireRequest, held bool) uint64 {
			t.Helper()
			a, err := s.Acquire(t.Context(), r)
			if err != nil || a.Held != held {
				t.Fatalf("%s: %+v, %v; want held: %v", r.Token, a, err, held)
			}
			return a.Fence
		}
		fence := ask(x, true) // the reply is lost
		if revoked, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: "b", Fence: fence}); !revoked || err != nil {
			t.Fatalf("revoke: %v, %v", revoked, err)
		}
		ask(y, true)
		ask(x, false) // waits, though it holds a
		if released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "b", Token: "y"}); !released || err != nil {
			t.Fatalf("release: %v, %v", released, err)
		}
		ask(x, true)
		for _, n := range []string{"a", "b"} {
			st, err := s.Inspect(t.Context(), n)
			wantErr(t, err)
			if st.Waiting > 0 {
				t.Errorf("%d queue entries left for %s", st.Waiting, n)
			}
		}
	})
}

// An attempt's cancel does not cancel the next attempt with the same token.
func TestStepwiseAcquireRetriesWithItsToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, splitStore{driver.Complete(s)}), open(t, s)
		for range 20 {
			b := lock(t, other, "b")
			time.AfterFunc(5*time.Millisecond, func() { wantErr(t, b.Unlock()) })
			l, err := c.All([]string{"a", "b"}).Lock(t.Context(), dibs.OwnerToken("request-1"), dibs.Attempts(10, time.Millisecond))
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

// The hook reports no loss for a lease that no caller received.
func TestMultiMutexReportsNoLossBeforeItBegins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := mutex(t, s, "c")
		lost, acquired := 0, 0
		multi := multiMutex(t, splitStore{driver.Complete(s)}, []string{"a", "c"}, dibs.Observe(dibs.Hooks{
			Lost:       func(context.Context, dibs.Lost) { lost++ },
			AcquireEnd: func(context.Context, dibs.AcquireEnd) { acquired++ },
		}))
		state, err := s.Inspect(t.Context(), "a")
		wantErr(t, err)
		if revoked, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: "a", Fence: state.Holders[0].Fence}); !revoked || err != nil {
			t.Fatalf("revoke: %v, %v", revoked, err)
		}
		unlock(t, c)
		<-multi.done
		wantHeld(t, multi)
		if lost != 0 || acquired != 1 {
			t.Errorf("%d Lost hooks, %d AcquireEnd hooks, want 0 and 1", lost, acquired)
		}
	})
}

// Close releases the remaining names after a multi-lock lost a name.
func TestCloseReleasesPartlyLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := memstore.New()
		c := dibs.New(splitStore{driver.Complete(m)})
		l, err := c.All([]string{"a", "b"}).Lock(t.Context(), dibs.TTL(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if revoked, err := m.Revoke(t.Context(), driver.RevokeRequest{Name: "a", Fence: l.FenceOf("a")}); !revoked || err != nil {
			t.Fatalf("revoked %t, %v", revoked, err)
		}
		<-l.Context().Done()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		wantAllFree(t, m, "a", "b")
	})
}
