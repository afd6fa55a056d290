package zkstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/zkstore"
)

// Replies are lost after the server did the requests, requests are lost or arrive late, and
// connections end or stall.
func TestRepliesAreLost(t *testing.T) {
	t.Parallel()
	lasts := 12 * time.Second
	if isLong() {
		lasts = 2 * time.Minute
	}
	server := sharedServer(t)
	d := newDrill(t, connect(t, server))
	var wires []*wire
	for range 3 {
		w := newWire(t)
		wires = append(wires, w)
		locks := d.open(endpoints(server), zkstore.Dial(w.dial))
		for range 3 {
			d.enter(locks)
		}
	}
	faults := 0
	for end := time.Now().Add(lasts); time.Now().Before(end); faults++ {
		wires[rand.IntN(len(wires))].disturb(d.prefix, d.sleep)
	}
	healed := d.rec.Now()
	t.Logf("FIGURE %d faults, an entry %v afterwards", faults, d.wantEntry(healed, longestIdle))
	d.stop()
}

// A faulty is a store whose network fails, and another without faults.
type faulty struct {
	t      *testing.T
	wire   *wire
	store  *zkstore.Store
	direct *zkstore.Store
	name   string // that the faults concern; another for each fault
}

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	w, prefix, servers := newWire(t), newPrefix(), endpoints(sharedServer(t))
	f := &faulty{t: t, wire: w}
	f.store = open(t, servers, zkstore.Prefix(prefix), zkstore.Dial(w.dial))
	f.direct = open(t, servers, zkstore.Prefix(prefix))
	for _, s := range []*zkstore.Store{f.store, f.direct} { // the first requests of a store take longer
		wantHeld(t, s, request("warm", "warm", shortTTL))
		release(t, s, "warm", "warm")
	}
	return f
}

const (
	shortTTL = 8 * time.Second // an ephemeral znode
	longTTL  = 2 * time.Hour   // a persistent znode
)

// until repeats a call until its outcome is known.
func (f *faulty) until(call func(ctx context.Context) error) {
	f.t.Helper()
	eventually(f.t, 30*time.Second, func() error {
		ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Second)
		defer cancel()
		err := call(ctx)
		if err != nil && !errors.Is(err, driver.ErrUnavailable) {
			f.t.Fatalf("%s: %v", f.name, err)
		}
		return err
	})
}

func (f *faulty) state() driver.State {
	f.t.Helper()
	state, err := f.direct.Inspect(soon(f.t), f.name)
	must(f.t, err)
	return state
}

// wantState checks how many requests hold the name and wait.
func (f *faulty) wantState(holding, waiting int) {
	f.t.Helper()
	if s := f.state(); s.Holding != holding || s.Waiting != waiting {
		f.t.Fatalf("%s: %+v, want %d holders and %d waiters", f.name, s, holding, waiting)
	}
}

func (f *faulty) wantHeldBy(token string) {
	f.t.Helper()
	if s := f.state(); len(s.Holders) != 1 || s.Holders[0].Token != token {
		f.t.Fatalf("%s: %+v, want it held by %q", f.name, s, token)
	}
}

func (f *faulty) acquire(r driver.AcquireRequest, held bool) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		reply, err := f.store.Acquire(ctx, r)
		if err == nil && reply.Held != held {
			return fmt.Errorf("%q: %+v, want held %v", r.Name, reply, held)
		}
		return err
	}
}

func (f *faulty) release(token string, reserve time.Duration) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, err := f.store.Release(ctx, driver.ReleaseRequest{Name: f.name, Token: token, Reserve: reserve})
		return err
	}
}

func (f *faulty) extend(token string, ttl time.Duration) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		return f.store.Extend(ctx, []driver.ExtendRequest{{Name: f.name, Token: token, Client: "client-" + token, TTL: ttl, Weight: 1, Limit: 1}})[0]
	}
}

func (f *faulty) cancel(r driver.AcquireRequest) func(ctx context.Context) error {
	return func(ctx context.Context) error { return f.store.Cancel(ctx, r) }
}

func (f *faulty) resize(r driver.AcquireRequest, held bool) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		reply, err := f.store.Resize(ctx, r)
		if err == nil && reply.Held != held {
			return fmt.Errorf("%q: %+v, want held %v", r.Name, reply, held)
		}
		return err
	}
}

// A verb is a call whose requests fail, with its preparation, and the check of its effect.
type verb struct {
	name   string
	before func(f *faulty)
	call   func(f *faulty) func(ctx context.Context) error
	after  func(f *faulty)
}

func nothing(*faulty) {}

func verbs() (all []verb) {
	for _, ttl := range []time.Duration{shortTTL, longTTL} {
		add := func(name string, before func(f *faulty), call func(f *faulty) func(ctx context.Context) error, after func(f *faulty)) {
			all = append(all, verb{fmt.Sprint(name, " ", ttl), before, call, after})
		}
		mine := func(f *faulty) driver.AcquireRequest { return request(f.name, "t", ttl) }
		held := func(f *faulty) { wantHeld(f.t, f.store, mine(f)) }
		behind := func(f *faulty) { wantHeld(f.t, f.direct, request(f.name, "holder", shortTTL)) }
		waiting := func(f *faulty) { behind(f); wantBusy(f.t, f.store, mine(f)) }
		stays := func(f *faulty) {
			f.wantHeldBy("t")
			eventually(f.t, 10*time.Second, func() error { // a barrier of an upgrade can stay for a while
				if s := f.state(); s.Holding != 1 || s.Waiting != 0 {
					return fmt.Errorf("%s: %+v, want a single holder", f.name, s)
				}
				return nil
			})
			release(f.t, f.store, f.name, "t")
			f.wantState(0, 0)
		}
		gone := func(f *faulty) { f.wantState(0, 0) }

		add("acquire", nothing, func(f *faulty) func(context.Context) error { return f.acquire(mine(f), true) }, stays)
		add("acquire shared", nothing, func(f *faulty) func(context.Context) error { return f.acquire(reader(f.name, "t", ttl), true) }, stays)
		add("acquire again", held, func(f *faulty) func(context.Context) error { return f.acquire(mine(f), true) }, stays)
		add("wait", behind, func(f *faulty) func(context.Context) error { return f.acquire(mine(f), false) }, func(f *faulty) {
			f.wantState(1, 1)
			release(f.t, f.direct, f.name, "holder")
			wantHeld(f.t, f.store, mine(f))
			stays(f)
		})
		add("after a wait", func(f *faulty) { waiting(f); release(f.t, f.direct, f.name, "holder") },
			func(f *faulty) func(context.Context) error { return f.acquire(mine(f), true) }, stays)
		add("try", behind, func(f *faulty) func(context.Context) error { return f.acquire(try(f.name, "t", ttl), false) }, func(f *faulty) {
			f.wantState(1, 0)
		})
		add("several", nothing, func(f *faulty) func(context.Context) error {
			r := mine(f)
			r.With = []string{"a" + f.name, "z" + f.name}
			return f.acquire(r, true)
		}, func(f *faulty) {
			for _, name := range []string{"a" + f.name, "z" + f.name} {
				release(f.t, f.store, name, "t")
			}
			stays(f)
		})
		add("release", held, func(f *faulty) func(context.Context) error { return f.release("t", 0) }, gone)
		add("reserve", held, func(f *faulty) func(context.Context) error { return f.release("t", time.Hour) }, func(f *faulty) {
			if s := f.state(); len(s.Holders) != 1 || !s.Holders[0].Reserved || s.Holders[0].Remaining < 50*time.Minute {
				f.t.Fatalf("%s: %+v, want it reserved", f.name, s)
			}
		})
		add("cancel a lease", held, func(f *faulty) func(context.Context) error { return f.cancel(mine(f)) }, gone)
		add("cancel a wait", waiting, func(f *faulty) func(context.Context) error { return f.cancel(mine(f)) }, func(f *faulty) {
			f.wantState(1, 0)
		})
		add("extend", held, func(f *faulty) func(context.Context) error { return f.extend("t", ttl) }, stays)
		add("extend for longer", held, func(f *faulty) func(context.Context) error { return f.extend("t", 2*ttl) }, stays)
		add("upgrade", func(f *faulty) { wantHeld(f.t, f.store, reader(f.name, "t", ttl)) }, func(f *faulty) func(context.Context) error {
			return f.resize(writer(f.name, "t", ttl), true)
		}, func(f *faulty) {
			if s := f.state(); len(s.Holders) != 1 || !s.Holders[0].Exclusive() {
				f.t.Fatalf("%s: %+v, want an exclusive holder", f.name, s)
			}
			stays(f)
		})
		add("revoke", held, func(f *faulty) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := f.store.Revoke(ctx, driver.RevokeRequest{Name: f.name, Token: "t", Reason: "test"})
				return err
			}
		}, func(f *faulty) {
			gone(f)
			if err := extend(f.t, f.direct, mine(f), ttl); !errors.Is(err, driver.ErrLost) {
				f.t.Fatalf("%s: %v, want ErrLost", f.name, err)
			}
		})
	}
	return all
}

// Each request of each verb fails once. When the verb is repeated, its effect should be that of a
// single call.
func TestEachRequestFails(t *testing.T) {
	t.Parallel()
	for _, v := range verbs() {
		for what, fault := range map[string]fault{"reply lost": replyLost, "request lost": requestLost} {
			t.Run(v.name+", "+what, func(t *testing.T) {
				t.Parallel()
				failEachRequest(t, v, fault)
			})
		}
	}
}

func failEachRequest(t *testing.T, v verb, fault fault) {
	const most = 50
	f := newFaulty(t)
	for k := range most {
		f.name = fmt.Sprintf("n-%d-", k)
		v.before(f)
		struck := f.wire.strike(fault, concerns(f.name), k)
		f.until(v.call(f))
		f.wire.heal()
		select {
		case <-struck:
			v.after(f)
		default:
			if k == 0 {
				t.Error("no request failed")
			}
			t.Logf("%d requests", k)
			return
		}
	}
	t.Errorf("more than %d requests", most)
}

// Each request of each verb arrives late, after the call was repeated on another connection.
func TestEachRequestIsLate(t *testing.T) {
	t.Parallel()
	for _, v := range verbs() {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			delayEachRequest(t, v)
		})
	}
}

func delayEachRequest(t *testing.T, v verb) {
	const most = 50
	f := newFaulty(t)
	for k := range most {
		f.name = fmt.Sprintf("n-%d-", k)
		v.before(f)
		struck := f.wire.strike(requestLate, concerns(f.name), k)
		first := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			first <- v.call(f)(ctx)
		}()
		select {
		case err := <-first:
			must(t, err)
			t.Logf("%d requests", k)
			return
		case <-struck:
			f.wire.reset()
		}
		if err := <-first; err != nil && !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("%s: %v", f.name, err)
		}
		f.until(v.call(f))
		f.wire.deliver()
		time.Sleep(100 * time.Millisecond) // a late request would have an effect
		v.after(f)
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("more than %d requests", most)
}
