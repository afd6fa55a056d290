package dibs_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// isWanted reports whether Wanted's channel is closed.
func isWanted(l *dibs.Lease) bool {
	wanted := l.Wanted()
	synctest.Wait()
	select {
	case <-wanted:
		return true
	default:
		return false
	}
}

// queueFor begins to wait for a lock, in a goroutine that ends with the test.
func queueFor(t *testing.T, c *dibs.Client, lock func(ctx context.Context) (*dibs.Lease, error)) (leave func()) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		if l, err := lock(ctx); err == nil {
			_ = l.Unlock()
		}
	}()
	synctest.Wait()
	return leave
}

func TestWanted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, s), open(t, s)
		l := lock(t, c, "n")
		if isWanted(l) {
			t.Fatal("wanted while nobody waits")
		}
		if _, err := other.Mutex("n").TryLock(t.Context()); err == nil || isWanted(l) {
			t.Fatal("wanted by a call that does not wait")
		}
		begin := time.Now()
		leave := queueFor(t, other, func(ctx context.Context) (*dibs.Lease, error) { return other.Mutex("n").Lock(ctx) })
		<-l.Wanted()
		if took := time.Since(begin); took != 0 {
			t.Errorf("notified after %v, want at once", took)
		}
		leave()
		if !isWanted(l) {
			t.Error("not wanted any more after the waiter has left")
		}
		wantErr(t, l.Unlock())
		if !isWanted(l) {
			t.Error("the channel is open again after Unlock")
		}
	})
}

// Each kind of lease is wanted by each kind of waiter that it keeps out.
func TestWantedByKind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, s), open(t, s)
		hold := map[string]func(ctx context.Context) (*dibs.Lease, error){
			"mutex":  func(ctx context.Context) (*dibs.Lease, error) { return c.Mutex("a").Lock(ctx) },
			"reader": func(ctx context.Context) (*dibs.Lease, error) { return c.RWMutex("a").Reader().Lock(ctx) },
			"writer": func(ctx context.Context) (*dibs.Lease, error) { return c.RWMutex("a").Writer().Lock(ctx) },
			"permit": func(ctx context.Context) (*dibs.Lease, error) { return c.Semaphore("a", 2).Permits(1).Lock(ctx) },
			"multi":  func(ctx context.Context) (*dibs.Lease, error) { return c.All([]string{"b", "a"}).Lock(ctx) },
			"leader": func(ctx context.Context) (*dibs.Lease, error) { return c.Election("a").Campaign(ctx) },
		}
		want := map[string]func(ctx context.Context) (*dibs.Lease, error){
			"mutex":   func(ctx context.Context) (*dibs.Lease, error) { return other.Mutex("a").Lock(ctx) },
			"writer":  func(ctx context.Context) (*dibs.Lease, error) { return other.RWMutex("a").Writer().Lock(ctx) },
			"permits": func(ctx context.Context) (*dibs.Lease, error) { return other.Semaphore("a", 2).Permits(2).Lock(ctx) },
			"multi":   func(ctx context.Context) (*dibs.Lease, error) { return other.All([]string{"z", "a"}).Lock(ctx) },
		}
		for held, lock := range hold {
			for waiter, queue := range want {
				l, err := lock(t.Context())
				wantErr(t, err)
				if isWanted(l) {
					t.Errorf("%s: wanted while nobody waits", held)
				}
				leave := queueFor(t, other, queue)
				if !isWanted(l) {
					t.Errorf("%s: not wanted by a waiting %s", held, waiter)
				}
				leave()
				synctest.Wait()
				wantErr(t, l.Unlock())
			}
		}
	})
}

// The holder asks after the first waiter queued, as after a hand-off.
func TestWantedAlready(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, s), open(t, s)
		l := lock(t, c, "n")
		defer queueFor(t, other, func(ctx context.Context) (*dibs.Lease, error) { return other.Mutex("n").Lock(ctx) })()
		if !isWanted(l) {
			t.Error("not wanted, want it: a request waits")
		}
	})
}

// A store without notifications, or a store whose notification is lost, answers at the next
// renewal.
func TestWantedWithoutNotification(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, reliable := newFaulty()
		s.set(func(f *faulty) {
			f.event = func(e driver.Event, on func(driver.Event)) {
				if e.Kind != driver.EventWanted {
					on(e)
				}
			}
		})
		c, other := open(t, s, dibs.TTL(30*time.Second)), open(t, reliable)
		l := lock(t, c, "n")
		if isWanted(l) {
			t.Fatal("wanted while nobody waits")
		}
		begin := time.Now()
		defer queueFor(t, other, func(ctx context.Context) (*dibs.Lease, error) { return other.Mutex("n").Lock(ctx) })()
		<-l.Wanted()
		if took := time.Since(begin); took == 0 || took > 10*time.Second {
			t.Errorf("wanted after %v, want it with the first renewal, a third of the TTL", took)
		}
	})
}

// While the store is away, the client asks again and again.
func TestWantedOfUnavailableStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, reliable := newFaulty()
		c, other := open(t, s, dibs.TTL(10*time.Minute)), open(t, reliable)
		l := lock(t, c, "n")
		s.set(func(f *faulty) {
			f.notify = func(context.Context, driver.WantedRequest) (bool, error) { return false, errReset }
		})
		defer queueFor(t, other, func(ctx context.Context) (*dibs.Lease, error) { return other.Mutex("n").Lock(ctx) })()
		if isWanted(l) {
			t.Fatal("wanted, but the store did not answer")
		}
		time.Sleep(5 * time.Second)
		s.heal()
		begin := time.Now()
		<-l.Wanted()
		if took := time.Since(begin); took > time.Second {
			t.Errorf("wanted %v after the store was back, want a second at most", took)
		}
	})
}

// When events flow again, the client asks again, because events in the meantime are lost.
func TestWantedAfterReconnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, reliable := newFaulty()
		var notify func(driver.Event)
		s.set(func(f *faulty) {
			f.event = func(e driver.Event, on func(driver.Event)) {
				switch e.Kind {
				case driver.EventWanted:
				case driver.EventConnected:
					notify = on
					on(e)
				default:
					on(e)
				}
			}
		})
		c, other := open(t, s, dibs.TTL(time.Hour)), open(t, reliable)
		l := lock(t, c, "n")
		synctest.Wait() // connected
		l.Wanted()
		synctest.Wait()
		defer queueFor(t, other, func(ctx context.Context) (*dibs.Lease, error) { return other.Mutex("n").Lock(ctx) })()
		if isWanted(l) {
			t.Fatal("wanted, but the event was lost")
		}
		notify(driver.Event{Kind: driver.EventConnected})
		if !isWanted(l) {
			t.Error("not wanted after the reconnection")
		}
	})
}

// Nothing is sent for leases whose holders do not ask, and a single request for a lease whose
// holder does.
func TestWantedIsFree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, reliable := newFaulty()
		events := 0
		s.set(func(f *faulty) {
			f.event = func(e driver.Event, on func(driver.Event)) {
				if e.Kind == driver.EventWanted {
					events++
				}
				on(e)
			}
		})
		c, other := open(t, s, dibs.TTL(time.Minute)), open(t, reliable)
		l := lock(t, c, "n")
		leave := queueFor(t, other, func(ctx context.Context) (*dibs.Lease, error) { return other.Mutex("n").Lock(ctx) })
		time.Sleep(time.Hour)
		leave()
		synctest.Wait()
		if s.notifies != 0 || events != 0 {
			t.Errorf("%d requests and %d events, want none", s.notifies, events)
		}
		for range 5 {
			isWanted(l)
		}
		if s.notifies != 1 {
			t.Errorf("%d requests, want 1", s.notifies)
		}
		queueFor(t, other, func(ctx context.Context) (*dibs.Lease, error) { return other.Mutex("n").Lock(ctx) })
		if wanted := isWanted(l); !wanted || events != 1 {
			t.Errorf("wanted %v after %d events, want it after 1", wanted, events)
		}
		time.Sleep(time.Hour) // it knows of the waiter, and does not ask with its renewals
		if s.notifies != 1 {
			t.Errorf("%d requests, want 1", s.notifies)
		}
		wantErr(t, l.Unlock())
	})
}

// An ended lease asks for nothing, and an attached lease may ask.
func TestWantedOfEndedAndAttached(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, reliable := newFaulty()
		c, other := open(t, s), open(t, reliable)
		l := lock(t, c, "n")
		wantErr(t, l.Unlock())
		if isWanted(l) || s.notifies != 0 {
			t.Errorf("wanted after Unlock, or %d requests", s.notifies)
		}
		held := lock(t, other, "n")
		attached, err := c.Attach(t.Context(), held.Handle())
		wantErr(t, err)
		if isWanted(attached) {
			t.Error("wanted while nobody waits")
		}
		leave := queueFor(t, other, func(ctx context.Context) (*dibs.Lease, error) { return other.Mutex("n").Lock(ctx) })
		if !isWanted(attached) {
			t.Error("the attached lease is not wanted")
		}
		leave()
		wantErr(t, held.Detach())
		wantErr(t, attached.Unlock())
	})
}

func TestHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New())
		wantErr(t, c.Holds(t.Context(), "a"), dibs.ErrInvalid)
		var ended context.Context
		wantErr(t, c.All([]string{"a", "b"}).Do(t.Context(), func(ctx context.Context) error {
			ended = ctx
			return c.RWMutex("c").Reader().Do(ctx, func(ctx context.Context) error {
				for _, name := range []string{"a", "b", "c"} {
					wantErr(t, c.Holds(ctx, name))
				}
				wantErr(t, c.Holds(ctx, "d"), dibs.ErrInvalid)
				wantErr(t, c.Holds(context.WithoutCancel(ctx), "a"))
				wantErr(t, c.Holds(t.Context(), "a"), dibs.ErrInvalid)
				return nil
			})
		}))
		wantErr(t, c.Holds(ended, "a"), dibs.ErrReleased)

		// It compares the clock, also if nothing ended the lease yet.
		l := lock(t, c, "a", dibs.NoRenew(), dibs.TTL(time.Second))
		wantErr(t, c.Holds(l.Context(), "a"))
		time.Sleep(time.Second)
		wantErr(t, c.Holds(l.Context(), "a"), dibs.ErrLost)
	})
}

// A nestedStore, a comparable type, contains an incomparable store.
type nestedStore struct{ driver.Store }

type functionStore struct {
	driver.Store
	_ func()
}

// Incomparable stores count as different, without a panic.
func TestHoldsOfIncomparableStores(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := nestedStore{functionStore{Store: memstore.New()}}
		here, other := open(t, s), open(t, s)
		l := lock(t, here, "n")
		wantErr(t, here.Holds(l.Context(), "n"))
		wantErr(t, other.Holds(l.Context(), "n"), dibs.ErrInvalid)
	})
}

// A lease in another store does not count, even on the same name. A lease from another client on
// the same store does.
func TestHoldsComparesStores(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		here, sameStore, elsewhere := open(t, s), open(t, s), open(t, memstore.New())
		wantErr(t, elsewhere.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			wantErr(t, here.Holds(ctx, "n"), dibs.ErrInvalid)
			wantErr(t, elsewhere.Holds(ctx, "n"))
			return here.Mutex("n").Do(ctx, func(ctx context.Context) error {
				wantErr(t, here.Holds(ctx, "n"))
				wantErr(t, sameStore.Holds(ctx, "n"))
				wantErr(t, elsewhere.Holds(ctx, "n"))
				return nil
			})
		}))
	})
}
