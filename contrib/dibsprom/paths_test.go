package dibsprom_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsprom"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/memstore"
	"github.com/prometheus/client_golang/prometheus"
)

// A scene is the setting for a path in TestPaths: order:9 is held by another client for 9 seconds,
// all other names are free.
type scene struct {
	t     *testing.T
	locks *dibs.Client
	other *dibs.Client // without metrics
	store *faulty
}

// hold unlocks a lease after a second. Errors show in the figures.
func hold(l *dibs.Lease, err error) {
	if err == nil {
		time.Sleep(time.Second)
		_ = l.Unlock()
	}
}

// keep waits until the lease is lost, and unlocks it.
func keep(l *dibs.Lease, err error) {
	if err == nil {
		<-l.Context().Done()
		_ = l.Unlock()
	}
}

func acquire(kind dibs.Kind, result string) string {
	return fmt.Sprintf("dibs_acquire_seconds{order:*,%s,%s}", kind, result)
}

func held(kind dibs.Kind, end string) string {
	return fmt.Sprintf("dibs_held_seconds{order:*,%s,%s}", kind, end)
}

func lost(reason string) string { return "dibs_lost_total{order:*," + reason + "}" }

func TestPaths(t *testing.T) {
	background := context.Background()
	const (
		name, taken = "order:1", "order:9"
		mutex       = dibs.KindMutex
	)
	ended, cancel := context.WithCancel(background)
	cancel()
	plain := func(kind dibs.Kind) []string {
		return []string{acquire(kind, "acquired"), held(kind, "released")}
	}
	lostBy := func(reason string) []string {
		return []string{acquire(mutex, "acquired"), held(mutex, "lost"), lost(reason)}
	}
	for what, path := range map[string]struct {
		run  func(s *scene)
		want []string // the series with the value 1
	}{
		"lock": {func(s *scene) { hold(s.locks.Mutex(name).Lock(background)) }, plain(mutex)},
		"wait for a hand-off": {
			func(s *scene) { hold(s.locks.Mutex(taken).Lock(background)) },
			[]string{acquire(mutex, "notified"), held(mutex, "released")},
		},
		"try in vain":  {func(s *scene) { hold(s.locks.Mutex(taken).TryLock(background)) }, []string{acquire(mutex, "busy")}},
		"wait in vain": {func(s *scene) { hold(s.locks.Mutex(taken).Lock(background, dibs.Wait(time.Second))) }, []string{acquire(mutex, "busy")}},
		"attempts in vain": {
			func(s *scene) { hold(s.locks.Mutex(taken).Lock(background, dibs.Attempts(2, time.Second))) },
			[]string{acquire(mutex, "busy")},
		},
		"timeout in the queue": {
			func(s *scene) {
				ctx, cancel := context.WithTimeout(background, time.Second)
				defer cancel()
				hold(s.locks.Mutex(taken).Lock(ctx))
			},
			[]string{acquire(mutex, "timeout")},
		},
		"cancel in the queue": {
			func(s *scene) {
				ctx, cancel := context.WithCancel(background)
				time.AfterFunc(time.Second, cancel)
				hold(s.locks.Mutex(taken).Lock(ctx))
			},
			[]string{acquire(mutex, "canceled")},
		},
		"cancel with a cause in the queue": {
			func(s *scene) {
				ctx, cancel := context.WithCancelCause(background)
				time.AfterFunc(time.Second, func() { cancel(errors.New("no paper")) })
				hold(s.locks.Mutex(taken).Lock(ctx))
			},
			[]string{acquire(mutex, "canceled")},
		},
		"ended context": {func(s *scene) { hold(s.locks.Mutex(name).Lock(ended)) }, []string{acquire(mutex, "canceled")}},
		"context without time": {
			func(s *scene) {
				ctx, cancel := context.WithTimeout(background, -1)
				defer cancel()
				hold(s.locks.Mutex(name).Lock(ctx))
			},
			[]string{acquire(mutex, "timeout")},
		},
		"no store": {
			func(s *scene) {
				s.store.Fail(unavailable(), "acquire")
				hold(s.locks.Mutex(name).Lock(background))
			},
			[]string{acquire(mutex, "unavailable")},
		},
		"closed connections": {
			func(s *scene) {
				time.AfterFunc(time.Second, func() {
					s.store.Fail(&driver.UnavailableError{Op: "acquire", Name: taken, Refused: true, Cause: driver.ErrDisconnected}, "acquire")
				})
				hold(s.locks.Mutex(taken).Lock(background))
			},
			[]string{acquire(mutex, "unavailable")},
		},
		"wrong type": {
			func(s *scene) {
				s.store.Fail(&dibs.WrongTypeError{Op: "acquire"}, "acquire")
				hold(s.locks.Mutex(name).Lock(background))
			},
			[]string{acquire(mutex, "wrong_type")},
		},
		"another error": {
			func(s *scene) {
				s.store.Fail(fmt.Errorf("%w: too long", dibs.ErrInvalid), "acquire")
				hold(s.locks.Mutex(name).Lock(background))
			},
			[]string{acquire(mutex, "error")},
		},
		"closed": {
			func(s *scene) {
				s.locks.Close()
				hold(s.locks.Mutex(name).Lock(background))
			},
			[]string{acquire(mutex, "closed")},
		},
		"closed in the queue": {
			func(s *scene) {
				time.AfterFunc(time.Second, func() { s.locks.Close() })
				hold(s.locks.Mutex(taken).Lock(background))
			},
			[]string{acquire(mutex, "closed")},
		},
		"closed while held": {
			func(s *scene) {
				time.AfterFunc(time.Second, func() { s.locks.Close() })
				keep(s.locks.Mutex(name).Lock(background))
			},
			lostBy("closed"),
		},
		"expired": {func(s *scene) { keep(s.locks.Mutex(name).Lock(background, dibs.NoRenew())) }, lostBy("expired")},
		"max hold": {
			func(s *scene) { keep(s.locks.Mutex(name).Lock(background, dibs.MaxHold(time.Second))) },
			lostBy("max_hold"),
		},
		"revoked": {
			func(s *scene) {
				l, err := s.locks.Mutex(name).Lock(background)
				time.AfterFunc(time.Second, func() {
					if _, err := s.other.Revoke(background, name, dibs.Holder{Fence: l.Fence()}, "maintenance"); err != nil {
						s.t.Error(err)
					}
				})
				keep(l, err)
			},
			lostBy("revoked"),
		},
		"taken": {
			func(s *scene) {
				s.store.Fail(&dibs.LostError{Name: name, Reason: dibs.ReasonMissing}, "extend")
				keep(s.locks.Mutex(name).Lock(background))
			},
			lostBy("missing"),
		},
		"found lost by Unlock": {
			func(s *scene) {
				l, err := s.locks.Mutex(name).Lock(background, dibs.OwnerToken("mine"))
				if err == nil {
					hold(s.other.Attach(background, dibs.NewHandle(name, "mine")))
				}
				hold(l, err)
			},
			lostBy("missing"),
		},
		"no answer to Unlock": {
			func(s *scene) {
				s.store.Fail(unavailable(), "release")
				hold(s.locks.Mutex(name).Lock(background))
			},
			[]string{acquire(mutex, "acquired"), held(mutex, "unavailable")},
		},
		"detached": {
			func(s *scene) {
				l, err := s.locks.Mutex(name).Lock(background)
				if err == nil {
					err = l.Detach()
				}
				hold(l, err)
			},
			plain(mutex),
		},
		"attached and lost": {
			func(s *scene) {
				if _, err := s.other.Mutex(name).Lock(background, dibs.OwnerToken("theirs")); err != nil {
					s.t.Error(err)
				}
				hold(s.locks.Attach(background, dibs.NewHandle(name, "theirs"), dibs.MaxHold(500*time.Millisecond)))
			},
			[]string{held(dibs.KindAttached, "lost"), lost("max_hold")},
		},
		"attached and released": {
			func(s *scene) {
				if _, err := s.other.Mutex(name).Lock(background, dibs.OwnerToken("theirs")); err != nil {
					s.t.Error(err)
				}
				hold(s.locks.Attach(background, dibs.NewHandle(name, "theirs")))
			},
			[]string{held(dibs.KindAttached, "released")},
		},
		"nested": {
			func(s *scene) {
				_ = s.locks.Mutex(name).Do(background, func(ctx context.Context) error {
					hold(s.locks.Mutex(name).Lock(ctx))
					hold(s.locks.Mutex(name).Lock(ctx, dibs.Reentrant()))
					return nil
				})
			},
			plain(mutex),
		},
		"invalid": {func(s *scene) { hold(s.locks.Mutex("").Lock(background)) }, nil},
		"reader":  {func(s *scene) { hold(s.locks.RWMutex(name).Reader().Lock(background)) }, plain(dibs.KindReader)},
		"writer":  {func(s *scene) { hold(s.locks.RWMutex(name).Writer().Lock(background)) }, plain(dibs.KindWriter)},
		"semaphore": {
			func(s *scene) { hold(s.locks.Semaphore(name, 5).Permits(2).Lock(background)) },
			plain(dibs.KindSemaphore),
		},
		"multi": {func(s *scene) { hold(s.locks.All([]string{name, "order:2", "x"}).Lock(background)) }, plain(dibs.KindMulti)},
		"multi after a wait": {
			func(s *scene) { hold(s.locks.All([]string{name, taken}).Lock(background)) },
			[]string{acquire(dibs.KindMulti, "acquired"), held(dibs.KindMulti, "released")},
		},
		"multi in vain": {
			func(s *scene) { hold(s.locks.All([]string{name, taken}).Lock(background, dibs.Wait(time.Second))) },
			[]string{acquire(dibs.KindMulti, "busy")},
		},
		"election": {func(s *scene) { hold(s.locks.Election(name).Campaign(background)) }, plain(dibs.KindElection)},
		"once": {
			func(s *scene) {
				if err := s.locks.Once(name, time.Minute).Do(background, func(context.Context) error { return nil }); err != nil {
					s.t.Error(err)
				}
			},
			plain(dibs.KindOnce),
		},
		"yield": {
			func(s *scene) {
				m := s.locks.Mutex(name)
				_ = m.Do(background, func(ctx context.Context) error {
					var other sync.WaitGroup
					other.Go(func() { hold(s.other.Mutex(name).Lock(background)) })
					time.Sleep(time.Second)
					err := carried.Yield(ctx, name)
					other.Wait()
					return err
				})
			},
			[]string{acquire(mutex, "acquired"), acquire(mutex, "notified"), "2 " + held(mutex, "released")},
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scene{t: t, store: newFaulty()}
				reg := prometheus.NewRegistry()
				s.locks = newLocks(t, newMetrics(t, reg, dibsprom.Config{}), s.store)
				s.other = dibs.New(s.store.Store)
				defer s.other.Close()
				l, err := s.other.Mutex(taken).Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(9*time.Second, func() { l.Unlock() })

				path.run(s)
				time.Sleep(time.Minute)
				want := make(map[string]float64)
				for _, name := range path.want {
					n := 1.0
					_, _ = fmt.Sscanf(name, "%g %s", &n, &name)
					want[name] = n
				}
				have := figures(t, reg)
				delete(have, "dibs_handoff_seconds")
				delete(have, "dibs_renew_seconds")
				delete(have, "dibs_headroom_ratio")
				if !maps.Equal(have, want) {
					t.Errorf("have %v\nwant %v", have, want)
				}
			})
		})
	}
}

// Each gauge should count the current state.
func TestGauges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		m := newMetrics(t, reg, dibsprom.Config{})
		store := memstore.New()
		clients := []*dibs.Client{newLocks(t, m, store), newLocks(t, m, store)}
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for i := range 7 { // three hold, four wait
			calls.Go(func() { hold(clients[i%2].Semaphore("pool", 3).Permits(1).Lock(ctx)) })
			synctest.Wait()
		}
		time.Sleep(time.Millisecond)
		have := figures(t, reg)
		if have["dibs_holding{pool}"] != 3 || have["dibs_waiting{pool}"] != 4 {
			t.Errorf("have %v, want 3 holders and 4 waiters", have)
		}
		cancel() // ends the waits only
		time.Sleep(time.Millisecond)
		have = figures(t, reg)
		if have["dibs_holding{pool}"] != 3 || have["dibs_waiting{pool}"] != 0 || have["dibs_acquire_seconds{pool,semaphore,canceled}"] != 4 {
			t.Errorf("have %v, want 3 holders and 4 cancelled calls", have)
		}
		calls.Wait()
		wantBalanced(t, reg)
	})
}

// A hand-off is measured from the release to the lease.
func TestHandoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		hooks := newMetrics(t, reg, dibsprom.Config{}).Hooks()
		for _, age := range []time.Duration{0, time.Millisecond} { // zero is unknown
			hooks.AcquireEnd(t.Context(), dibs.AcquireEnd{LockInfo: dibs.LockInfo{Names: []string{"n"}, Kind: dibs.KindMutex}, Notified: true, Handoff: age})
		}
		wantFigures(t, reg, map[string]float64{
			"dibs_acquire_seconds{n,mutex,notified}": 2, "dibs_holding{n}": 2, "dibs_handoff_seconds": 1,
		})
	})
}

// Failed renewals are counted, and also how little time was left at the next renewal.
func TestRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		store := newFaulty()
		locks := newLocks(t, newMetrics(t, reg, dibsprom.Config{}), store)
		l, err := locks.Mutex("order:1").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second) // one renewal
		if have := figures(t, reg); have["dibs_renew_seconds"] != 1 || have["dibs_headroom_ratio"] != 1 || have["dibs_renew_failed_total{order:*}"] != 0 {
			t.Errorf("have %v, want one renewal", have)
		}
		store.Fail(unavailable(), "extend")
		time.Sleep(20 * time.Second)
		store.Fail(nil, "extend")
		time.Sleep(time.Second)
		if have := figures(t, reg); have["dibs_renew_seconds"] < 2 || have["dibs_renew_failed_total{order:*}"] < 10 || len(have) != 5 {
			t.Errorf("have %v, want renewals that failed, one that did not, and no loss", have)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() != "dibs_headroom_ratio" {
				continue
			}
			for _, b := range family.Metric[0].GetHistogram().Bucket {
				if want := uint64(1); b.GetUpperBound() == 0.3 && b.GetCumulativeCount() != want {
					t.Errorf("%d renewals with little headroom, want %d: %v", b.GetCumulativeCount(), want, family)
				}
			}
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
		wantBalanced(t, reg)
	})
}

// Each degraded Client must count once, even if the event for a beginning or an end was dropped.
func TestDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		m := newMetrics(t, reg, dibsprom.Config{})
		var stores []*faulty
		for range 2 {
			store := newFaulty()
			store.events = make(chan driver.Event)
			stores = append(stores, store)
			l, err := newLocks(t, m, store).Mutex("n").TryLock(t.Context()) // starts the client
			if err != nil {
				t.Fatal(err)
			}
			defer l.Unlock()
		}
		connected, disconnected := driver.Event{Kind: driver.EventConnected}, driver.Event{Kind: driver.EventDisconnected, Err: errors.New("cut off")}
		for i, step := range []struct {
			store int
			event driver.Event
			want  float64
		}{
			{0, connected, 0}, {0, disconnected, 1}, {0, disconnected, 1}, {1, disconnected, 2}, {0, connected, 1}, {0, connected, 1}, {1, connected, 0},
		} {
			stores[step.store].events <- step.event
			synctest.Wait()
			if have := figures(t, reg)["dibs_degraded"]; have != step.want {
				t.Errorf("step %d: %v Clients are degraded, want %v", i, have, step.want)
			}
		}
		hooks := m.Hooks()
		for _, step := range []struct{ err, twice error }{{errors.New("cut off"), errors.New("cut off")}, {nil, nil}} {
			hooks.Degraded(context.Background(), dibs.Degraded{Err: step.err})
			hooks.Degraded(context.Background(), dibs.Degraded{Err: step.twice})
		}
		if have := figures(t, reg)["dibs_degraded"]; have != 0 {
			t.Errorf("%v Clients are degraded in the end", have)
		}
	})
}

// Lost leases are counted even when a slow hook makes the Client drop other events.
func TestSlowHook(t *testing.T) {
	const leases = 12_000 // more than the Client's event buffer
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		resume := make(chan struct{})
		slow := dibs.Hooks{Renewed: func(context.Context, dibs.Renewed) { <-resume }}
		locks := dibs.New(memstore.New(), dibs.Observe(slow), dibs.Observe(newMetrics(t, reg, dibsprom.Config{}).Hooks()))
		defer locks.Close()
		for i := range leases {
			if _, err := locks.Mutex(fmt.Sprint("order:", i)).Lock(t.Context(), dibs.MaxHold(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		close(resume)
		synctest.Wait()
		have := figures(t, reg)
		if have[lost("max_hold")] != leases {
			t.Errorf("have %v, want %d losses", have, leases)
		}
		wantBalanced(t, reg)
	})
}

// All paths at once, on few names. The gauges are zero in the end.
func TestGaugesBalance(t *testing.T) {
	const workers, calls = 60, 40
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		m := newMetrics(t, reg, dibsprom.Config{})
		store := newFaulty()
		var clients []*dibs.Client
		for range 3 {
			clients = append(clients, newLocks(t, m, store))
		}
		time.AfterFunc(20*time.Second, func() { store.Fail(unavailable(), "extend", "release", "acquire") })
		time.AfterFunc(25*time.Second, func() { store.Fail(nil, "extend", "release", "acquire") })
		time.AfterFunc(40*time.Second, func() { clients[0].Close() })
		var group sync.WaitGroup
		for i := range workers {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			group.Go(func() {
				for range calls {
					callAtRandom(t.Context(), clients[random.IntN(len(clients))], random)
				}
			})
		}
		group.Wait()
		for _, c := range clients {
			c.Close()
		}
		synctest.Wait()
		wantBalanced(t, reg)
		have := figures(t, reg)
		ended := 0.0
		for _, result := range []string{"acquired", "notified", "busy", "timeout", "canceled", "unavailable", "closed", "error"} {
			ended += have[acquire(dibs.KindMutex, result)]
		}
		if ended != workers*calls {
			t.Errorf("%v calls have ended, want %d: %v", ended, workers*calls, have)
		}
		if have[acquire(dibs.KindMutex, "notified")] == 0 || have[acquire(dibs.KindMutex, "timeout")] == 0 || have[lost("max_hold")] == 0 {
			t.Errorf("have %v, want hand-offs, timeouts and losses", have)
		}
	})
}

// callAtRandom acquires a lock in a random way, and unlocks it after a while.
func callAtRandom(ctx context.Context, locks *dibs.Client, random *rand.Rand) {
	upTo := func(d time.Duration) time.Duration {
		return time.Duration(random.Int64N(int64(d))) + 10*time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, upTo(10*time.Second))
	defer cancel()
	options := []dibs.Option{dibs.TTL(upTo(3 * time.Second)), dibs.MaxHold(upTo(2 * time.Second))}
	if random.IntN(3) == 0 {
		options = append(options, dibs.Wait(upTo(5*time.Second)))
	}
	l, err := locks.Mutex(fmt.Sprint("order:", random.IntN(4))).Lock(ctx, options...)
	if err != nil {
		time.Sleep(upTo(100 * time.Millisecond)) // a closed client fails at once
		return
	}
	time.Sleep(upTo(time.Second))
	l.Unlock()
}
