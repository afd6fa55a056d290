package dibs_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// The holder's context ends, and the next waiter holds the lock, in the same step.
func TestRevokeEndsTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var losses []error
		operator := open(t, s)
		holder := open(t, s, dibs.Observe(dibs.Hooks{Lost: func(_ context.Context, l dibs.Lost) { losses = append(losses, l.Err) }}))
		l := lock(t, holder, "n")
		ctx := l.Context()
		next, third := mutex(t, s, "n"), mutex(t, s, "n")
		begin := time.Now()
		revoked, err := operator.Revoke(t.Context(), "n", dibs.Holder{Fence: l.Fence()}, "host is gone")
		if !revoked || err != nil {
			t.Fatal(revoked, err)
		}
		wantHeld(t, next)
		wantWaiting(t, third)
		<-ctx.Done()
		if d := time.Since(begin); d != 0 {
			t.Errorf("it took %v", d)
		}
		wantLost(t, context.Cause(ctx), dibs.ReasonRevoked)
		wantLost(t, l.Err(), dibs.ReasonRevoked)
		var lost *dibs.LostError
		if want := `dibs: lease on "n" lost: revoked: host is gone`; !errors.As(l.Err(), &lost) || lost.Message != "host is gone" || lost.Error() != want {
			t.Errorf("error %v, want %s", l.Err(), want)
		}
		if len(losses) != 1 {
			t.Errorf("losses %v, want one", losses)
		}
		wantLost(t, l.Unlock(), dibs.ReasonRevoked)
		wantErr(t, l.Unlock())
		wantLost(t, l.Extend(t.Context(), time.Minute), dibs.ReasonRevoked)
		time.Sleep(time.Minute)
		wantErr(t, next.lease.Err()) // not affected
		unlock(t, next)
		wantHeld(t, third)
		if next.lease.Fence() <= l.Fence() {
			t.Errorf("fence %d after %d", next.lease.Fence(), l.Fence())
		}
	})
}

// A holder without a fence is found by its token. If there is a fence, it counts.
func TestRevokeByToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, operator := open(t, s), open(t, s)
		l := lock(t, c, "n")
		synctest.Wait() // until its client is subscribed
		for _, holder := range []dibs.Holder{{Token: "nobody"}, {Token: l.Token(), Fence: l.Fence() - 1}} {
			if revoked, err := operator.Revoke(t.Context(), "n", holder, ""); revoked || err != nil {
				t.Errorf("%+v: revoked: %v, %v", holder, revoked, err)
			}
		}
		wantErr(t, l.Err())
		state, err := operator.Inspect(t.Context(), "n")
		wantErr(t, err)
		holder := state.Holders[0]
		holder.Fence = 0
		if revoked, err := operator.Revoke(t.Context(), "n", holder, "host is gone"); !revoked || err != nil {
			t.Fatal(revoked, err)
		}
		synctest.Wait()
		wantLost(t, l.Err(), dibs.ReasonRevoked)
		wantFree(t, s, "n")
	})
}

func TestRevokeEndsTheWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		operator := open(t, s)
		err := open(t, s).Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			synctest.Wait() // until it receives events
			revoked, err := operator.Revoke(t.Context(), "n", dibs.Holder{Fence: fenceIn(t, ctx)}, "")
			if !revoked || err != nil {
				t.Error(revoked, err)
			}
			<-ctx.Done()
			return nil
		})
		wantLost(t, err, dibs.ReasonRevoked)
		wantFree(t, s, "n")
	})
}

// A lease's fence cannot revoke another lease.
func TestRevokeWithAnotherFence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		operator := open(t, s)
		c := open(t, s)
		before := lock(t, c, "n")
		wantErr(t, before.Unlock())
		l, elsewhere := lock(t, c, "n"), lock(t, c, "m")
		next := mutex(t, s, "n")
		was, err := s.Inspect(t.Context(), "n")
		wantErr(t, err)
		for _, fence := range []uint64{1, before.Fence(), l.Fence() - 1, l.Fence() + 1, elsewhere.Fence(), 1<<64 - 1} {
			revoked, err := operator.Revoke(t.Context(), "n", dibs.Holder{Fence: fence}, "")
			if revoked || err != nil {
				t.Errorf("revoke of fence %d, the lease has %d: %v, %v", fence, l.Fence(), revoked, err)
			}
		}
		revoked, err := operator.Revoke(t.Context(), "nobody", dibs.Holder{Fence: l.Fence()}, "")
		if revoked || err != nil {
			t.Errorf("revoke of a free name: %v, %v", revoked, err)
		}
		synctest.Wait()
		wantErr(t, errors.Join(l.Err(), elsewhere.Err()))
		wantWaiting(t, next)
		is, err := s.Inspect(t.Context(), "n")
		if err != nil || is.Holders[0] != was.Holders[0] || is.Waiting != was.Waiting {
			t.Errorf("%+v, %v, want %+v", is, err, was)
		}
		wantFree(t, s, "nobody")
		wantErr(t, l.Unlock())
		revoked, err = operator.Revoke(t.Context(), "n", dibs.Holder{Fence: l.Fence()}, "") // it is over
		if revoked || err != nil {
			t.Errorf("revoke of an ended lease: %v, %v", revoked, err)
		}
		wantHeld(t, next)
		wantErr(t, next.lease.Err())
	})
}

// listed returns everything that List yields.
func listed(c *dibs.Client, pattern string) (states []dibs.State, err error) {
	for state, e := range c.List(context.Background(), pattern) {
		if e != nil {
			return nil, e
		}
		states = append(states, state)
	}
	return states, nil
}

// A loop over List may end early, and an error ends it.
func TestListEndsEarly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		c := open(t, f)
		const first = 500 // names inspected together
		lockMany(t, c, first+2)
		for state, err := range c.List(t.Context(), "*") {
			if err != nil || state.Name != "n0" {
				t.Errorf("%+v, %v, want n0", state, err)
			}
			break
		}
		if f.inspects != 1 {
			t.Errorf("%d calls of InspectAll, want 1", f.inspects)
		}
		f.set(func(f *faulty) {
			f.inspect = func(ctx context.Context, name string) (driver.State, error) {
				if name == "n99" { // the very last
					return driver.State{}, errReset
				}
				return f.Full.Inspect(ctx, name)
			}
		})
		var names []string
		var last error
		for state, err := range c.List(t.Context(), "*") {
			names, last = append(names, state.Name), err
		}
		if len(names) != first+1 || names[0] != "n0" || names[first] != "" || !errors.Is(last, dibs.ErrUnavailable) {
			t.Errorf("%d names, the first %q and the last %q, error %v: want %d, and then ErrUnavailable", len(names), names[0], names[len(names)-1], last, first)
		}
	})
}

// List inspects many names together, and yields all in order.
func TestListOfManyNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		c := open(t, f)
		const count, together = 1201, 500
		lockMany(t, c, count)
		states, err := listed(c, "*")
		byName := func(a, b dibs.State) int { return strings.Compare(a.Name, b.Name) }
		if err != nil || len(states) != count || !slices.IsSortedFunc(states, byName) {
			t.Errorf("%d states, %v: want %d, sorted", len(states), err, count)
		}
		for _, s := range states {
			if len(s.Holders) != 1 || s.Holders[0].Kind != dibs.KindMutex {
				t.Errorf("%+v", s)
			}
		}
		if want := (count + together - 1) / together; f.inspects != want {
			t.Errorf("%d calls of InspectAll, want %d", f.inspects, want)
		}
	})
}

// List yields other libraries' locks, whatever their type, and a name that only has waiters. It
// leaves out data with other types, and names that became free.
func TestListLeavesOutData(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		c := open(t, f)
		states := map[string]driver.State{
			"n0": {Foreign: &driver.Foreign{Type: "hash", Lock: true}, Holders: []driver.Holder{{Token: "client:1"}}, Holding: 1},
			"n1": {Foreign: &driver.Foreign{Type: "set"}},
			"n2": {},
			"n3": {Waiting: 1, Waiters: []driver.Waiter{{Token: "waits"}}},
		}
		lockMany(t, c, len(states))
		f.set(func(f *faulty) {
			f.inspect = func(_ context.Context, name string) (driver.State, error) {
				state := states[name]
				state.Name = name
				return state, nil
			}
		})
		have, err := listed(c, "*")
		if err != nil || len(have) != 2 || have[0].Name != "n0" || have[0].Foreign == nil || have[1].Name != "n3" {
			t.Errorf("%+v, %v: want n0 and n3", have, err)
		}
	})
}

// Each step in List is bounded by the operation timeout.
func TestListIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		c := open(t, f, dibs.Timeout(3*time.Second))
		lockMany(t, c, 3)
		f.hangAll()
		begin := time.Now()
		if states, err := listed(c, "*"); !errors.Is(err, dibs.ErrUnavailable) || len(states) > 0 {
			t.Errorf("%+v, %v: want ErrUnavailable", states, err)
		}
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("it took %v, want 3s", took)
		}
		f.heal()
	})
}

func TestInvalidRevoke(t *testing.T) {
	c := open(t, unusedStore{t})
	for name, fence := range map[string]uint64{"n": 0, "": 1, "\xff": 1} {
		if revoked, err := c.Revoke(t.Context(), name, dibs.Holder{Fence: fence}, ""); revoked || !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("revoke of %q, fence %d: %v, %v", name, fence, revoked, err)
		}
	}
	for _, reason := range []string{"two\nlines", "\xff", "\x1b[2J", strings.Repeat("x", 257)} {
		if revoked, err := c.Revoke(t.Context(), "n", dibs.Holder{Fence: 1}, reason); revoked || !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("revoke with reason %q: %v, %v", reason, revoked, err)
		}
	}
}

// One of several holders is revoked; then the waiters that fit enter.
func TestRevokeOfOnePermit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		operator := open(t, s)
		a, b := permits(t, s, 1, 3), permits(t, s, 2, 3)
		next, after := permits(t, s, 1, 3), permits(t, s, 2, 3)
		wantWaiting(t, next, after)
		revoked, err := operator.Revoke(t.Context(), "n", dibs.Holder{Fence: a.lease.Fence()}, "")
		if !revoked || err != nil {
			t.Fatal(revoked, err)
		}
		wantHeld(t, next)
		wantWaiting(t, after)
		wantLost(t, a.lease.Err(), dibs.ReasonRevoked)
		wantErr(t, b.lease.Err())
		revoked, err = operator.Revoke(t.Context(), "n", dibs.Holder{Fence: b.lease.Fence()}, "")
		if !revoked || err != nil {
			t.Fatal(revoked, err)
		}
		wantHeld(t, after)
		wantLost(t, b.lease.Err(), dibs.ReasonRevoked)
		wantErr(t, next.lease.Err())
		wantLost(t, a.lease.Unlock(), dibs.ReasonRevoked)
		unlock(t, next, after)
		wantFree(t, s, "n")
	})
}

// Revoke ends a reader that blocks a writer, and an upgraded writer, which has a new fence.
func TestRevokeOfReadersAndWriters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		operator := open(t, s)
		m := open(t, s).RWMutex("n")
		r := queue(func() (*dibs.Lease, error) { return m.Reader().Lock(t.Context()) })
		stuck := reading(t, s, "n")
		w := writing(t, s, "n")
		revoked, err := operator.Revoke(t.Context(), "n", dibs.Holder{Fence: stuck.lease.Fence()}, "")
		if !revoked || err != nil {
			t.Fatal(revoked, err)
		}
		wantLost(t, stuck.lease.Err(), dibs.ReasonRevoked)
		wantWaiting(t, w)
		old := r.lease.Fence()
		wantErr(t, r.lease.TryUpgrade(t.Context()))
		if revoked, err := operator.Revoke(t.Context(), "n", dibs.Holder{Fence: old}, ""); revoked || err != nil {
			t.Errorf("revoke of the fence before the upgrade: %v, %v", revoked, err)
		}
		wantErr(t, r.lease.Err())
		if revoked, err := operator.Revoke(t.Context(), "n", dibs.Holder{Fence: r.lease.Fence()}, ""); !revoked || err != nil {
			t.Errorf("revoke after the upgrade: %v, %v", revoked, err)
		}
		wantHeld(t, w)
		wantLost(t, r.lease.Err(), dibs.ReasonRevoked)
	})
}

// A nested call detects the lease's loss as well.
func TestRevokeOfAReentrantLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		operator, c := open(t, s), open(t, s)
		l := lock(t, c, "n")
		inner, err := c.Mutex("n").Lock(l.Context(), dibs.Reentrant())
		wantErr(t, err)
		synctest.Wait()
		revoked, err := operator.Revoke(t.Context(), "n", dibs.Holder{Fence: inner.Fence()}, "")
		if !revoked || err != nil {
			t.Fatal(revoked, err)
		}
		wantLost(t, inner.Unlock(), dibs.ReasonRevoked)
		wantLost(t, l.Unlock(), dibs.ReasonRevoked)
		wantFree(t, s, "n")
	})
}

// The notification is a hint: without it, the next renewal detects the loss.
func TestRevokeWithLostNotification(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		f.set(func(f *faulty) {
			f.event = func(e driver.Event, on func(driver.Event)) {
				if e.Kind != driver.EventRevoked {
					on(e)
				}
			}
		})
		l := lock(t, open(t, f, dibs.TTL(3*time.Second)), "n")
		synctest.Wait()
		begin := time.Now()
		revoked, err := open(t, s).Revoke(t.Context(), "n", dibs.Holder{Fence: l.Fence()}, "")
		if !revoked || err != nil {
			t.Fatal(revoked, err)
		}
		<-l.Context().Done()
		wantWithin(t, time.Since(begin), 0, time.Second)
		wantLost(t, l.Err(), dibs.ReasonMissing)
	})
}

// A late notification concerns the lease it names, not a later lease with the same token.
func TestRevokeWithLateNotification(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		var late []func()
		f.set(func(f *faulty) {
			f.event = func(e driver.Event, on func(driver.Event)) {
				if e.Kind == driver.EventRevoked {
					late = append(late, func() { on(e) })
					return
				}
				on(e)
			}
		})
		c := open(t, f)
		l := lock(t, c, "n", dibs.OwnerToken("request-1"))
		synctest.Wait()
		revoked, err := open(t, s).Revoke(t.Context(), "n", dibs.Holder{Fence: l.Fence()}, "")
		if !revoked || err != nil || len(late) != 1 {
			t.Fatalf("%v, %v, %d notifications", revoked, err, len(late))
		}
		wantLost(t, l.Unlock(), dibs.ReasonMissing)
		l = lock(t, c, "n")
		late[0]()
		wantErr(t, l.Err())
		wantErr(t, l.Unlock())
	})
}

func TestRevokeNotifiesLastExtender(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a, b := open(t, s), open(t, s)
		l := lock(t, a, "n", dibs.OwnerToken("tok"), dibs.NoRenew())
		at, err := b.Attach(t.Context(), dibs.NewHandle("n", "tok"))
		wantErr(t, err)
		synctest.Wait()
		ok, err := open(t, s).Revoke(t.Context(), "n", dibs.Holder{Fence: l.Fence()}, "")
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		synctest.Wait()
		wantLost(t, at.Err(), dibs.ReasonRevoked)
	})
}
