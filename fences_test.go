package dibs_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/guard"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/memstore"
)

// Reserved fences follow each other. They are larger than earlier ones and smaller than later ones,
// and the lease stays as it is.
func TestReserveFences(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		l := lock(t, c, "n")
		before := l.Deadline()
		last := l.Fence()
		for _, n := range []int{1, 1000, 7, 1_000_000} {
			first, err := l.ReserveFences(t.Context(), n)
			wantErr(t, err)
			if first <= last {
				t.Fatalf("%d fences from %d on, after %d", n, first, last)
			}
			last = first + uint64(n) - 1
		}
		fence := l.Fence()
		if state, err := s.Inspect(t.Context(), "n"); err != nil || state.Holders[0].Fence != fence || l.Deadline() != before {
			t.Errorf("the lease has changed: %+v, %v", state, err)
		}
		revoked, err := c.Revoke(t.Context(), "n", dibs.Holder{Fence: fence}, "")
		if err != nil || !revoked {
			t.Errorf("revoked: %v, %v", revoked, err)
		}
		synctest.Wait()
		_, err = l.ReserveFences(t.Context(), 1)
		wantErr(t, err, dibs.ErrLost)
		if next := lock(t, c, "n"); next.Fence() <= last {
			t.Errorf("fence %d after %d", next.Fence(), last)
		}
	})
}

// After a failover that lost the last fences, no fence is reserved again.
func TestReserveFencesAfterAFailover(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &forgetful{Store: memstore.New()}
		l := lock(t, open(t, s), "n")
		first, err := l.ReserveFences(t.Context(), 100)
		wantErr(t, err)
		s.lost = true
		second, err := l.ReserveFences(t.Context(), 100)
		wantErr(t, err)
		if second < first+100 {
			t.Errorf("100 fences from %d on, and again from %d on", first, second)
		}
	})
}

// A forgetful store lost its fence high-water mark: it knows only the fence in a request.
type forgetful struct {
	*memstore.Store
	lost bool
}

func (s *forgetful) ReserveFences(ctx context.Context, r driver.FenceRequest) (driver.FenceReply, error) {
	if s.lost {
		return driver.FenceReply{Held: true, Last: r.Least}, nil
	}
	return s.Store.ReserveFences(ctx, r)
}

func TestBadReserveFences(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New())
		l := lock(t, c, "n")
		for _, n := range []int{-1, 0, 1_000_001} {
			_, err := l.ReserveFences(t.Context(), n)
			wantErr(t, err, dibs.ErrInvalid)
		}
		reader, err := c.RWMutex("r").Reader().Lock(t.Context())
		wantErr(t, err)
		several, err := c.All([]string{"x", "y"}).Lock(t.Context())
		wantErr(t, err)
		plain := lock(t, open(t, struct{ driver.Store }{memstore.New()}), "n")
		for what, l := range map[string]*dibs.Lease{"reader": reader, "several names": several, "store without fences": plain, "nil": nil, "zero": {}} {
			if _, err := l.ReserveFences(t.Context(), 1); err == nil {
				t.Errorf("%s: no error", what)
			} else {
				wantErr(t, err, dibs.ErrInvalid)
			}
		}
		wantErr(t, l.Unlock())
		_, err = l.ReserveFences(t.Context(), 1)
		wantErr(t, err, dibs.ErrReleased)
	})
}

// A store that does not answer is no loss.
func TestReserveFencesWhileStoreHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := lock(t, open(t, hanging{memstore.New()}), "n", dibs.Timeout(time.Second))
		begin := time.Now()
		_, err := l.ReserveFences(t.Context(), 1)
		wantErr(t, err, dibs.ErrUnavailable)
		wantWithin(t, time.Since(begin), 0, time.Second)
		wantErr(t, l.Err())
	})
}

// A hanging store does not reserve fences in time.
type hanging struct{ *memstore.Store }

func (hanging) ReserveFences(ctx context.Context, _ driver.FenceRequest) (driver.FenceReply, error) {
	return driver.FenceReply{}, hang(ctx, time.Time{})
}

// WithFence hides outer contexts' fences, and carries no lease.
func TestWithFence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		wantErr(t, c.Mutex("outer").Do(t.Context(), func(outer context.Context) error {
			ctx := dibs.WithFence(outer, "n", 42)
			if fenceIn(t, ctx) != 42 || fenceOf(t, ctx, "n") != 42 || fenceOf(t, ctx, "outer") != fenceIn(t, outer) {
				t.Errorf("fence %d, of n %d, of outer %d", fenceIn(t, ctx), fenceOf(t, ctx, "n"), fenceOf(t, ctx, "outer"))
			}
			_, err := dibs.FenceOf(ctx, "x")
			wantErr(t, err, dibs.ErrInvalid)
			for _, name := range []string{"n", "x"} {
				_, err = dibs.LeaseOf(ctx, name)
				wantErr(t, err, dibs.ErrInvalid)
			}
			if held := guard.Leases(ctx); len(held) != 0 {
				t.Errorf("it carries %+v", held)
			}
			wantErr(t, s.Guard(ctx), dibs.ErrInvalid)
			wantErr(t, s.Guard(outer))
			wantErr(t, carried.Yield(ctx, "n"), dibs.ErrInvalid)
			wantErr(t, c.Holds(ctx, "n"), dibs.ErrInvalid)
			wantErr(t, c.Holds(ctx, "outer")) // an assertion concerns all outer locks
			_, err = c.Mutex("outer").Lock(ctx)
			wantErr(t, err, dibs.ErrReentrant)
			hidden := dibs.WithFence(outer, "outer", 7)
			if fenceOf(t, hidden, "outer") != 7 {
				t.Errorf("fence %d of outer, want 7", fenceOf(t, hidden, "outer"))
			}
			return c.Mutex("inner").Do(ctx, func(inner context.Context) error {
				if fenceIn(t, inner) <= 42 || fenceOf(t, inner, "n") != 42 || len(guard.Leases(inner)) != 2 {
					t.Errorf("inside: fence %d, of n %d", fenceIn(t, inner), fenceOf(t, inner, "n"))
				}
				return s.Guard(inner)
			})
		}))
	})
}

// IsWanted asks the store once, and then waits for nothing.
func TestIsWanted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		l := lock(t, open(t, f), "n")
		f.hangAll()
		_, err := l.IsWanted(t.Context())
		wantErr(t, err, dibs.ErrUnavailable)
		f.heal()
		for range 3 {
			wanted, err := l.IsWanted(t.Context())
			if wanted || err != nil {
				t.Fatalf("wanted %v, %v; nobody waits", wanted, err)
			}
		}
		synctest.Wait()
		f.mu.Lock()
		before := f.notifies
		f.mu.Unlock()
		waiter := mutex(t, s, "n")
		<-l.Wanted() // it says so after the answer
		wanted, err := l.IsWanted(t.Context())
		if !wanted || err != nil {
			t.Errorf("wanted %v, %v; a request waits", wanted, err)
		}
		f.mu.Lock()
		if f.notifies != before {
			t.Errorf("%d requests, want %d", f.notifies, before)
		}
		f.mu.Unlock()
		wantErr(t, l.Unlock())
		wantHeld(t, waiter)
		unlock(t, waiter)
		_, err = (*dibs.Lease)(nil).IsWanted(t.Context())
		wantErr(t, err, dibs.ErrInvalid)
	})
}

// CallSettings returns a call's settings, and rejects the options that Lock rejects before it sends
// anything.
func TestCallSettings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := dibs.New(memstore.New(), dibs.TTL(time.Minute), dibs.Label("web"), dibs.Wait(time.Second))
		m := c.Mutex("n", dibs.Timeout(2*time.Second))
		set, err := m.CallSettings(t.Context(), dibs.MaxHold(time.Hour), dibs.Observe(dibs.Hooks{}), dibs.OwnerToken("request-1"))
		wantErr(t, err)
		if set.Closing == nil {
			t.Error("no channel for the end of the Client")
		}
		set.Closing = nil
		want := dibs.CallSettings{
			Name: "n", TTL: time.Minute, Wait: time.Second, Timeout: 2 * time.Second, MaxHold: time.Hour, Label: "web", Token: "request-1", Observed: true,
		}
		if set != want {
			t.Errorf("have %+v, want %+v", set, want)
		}
		if set, err := dibs.New(memstore.New()).Mutex("n").CallSettings(t.Context()); err != nil || set.Wait >= 0 || set.Observed {
			t.Errorf("defaults: %+v, %v", set, err)
		}
		for _, option := range []dibs.Option{dibs.TTL(1), dibs.Wait(3), dibs.Attempts(0, time.Second)} {
			_, err := m.CallSettings(t.Context(), option)
			wantErr(t, err, dibs.ErrInvalid)
		}
		wantErr(t, m.Do(t.Context(), func(ctx context.Context) error {
			_, err := m.CallSettings(ctx)
			wantErr(t, err, dibs.ErrReentrant)
			_, err = m.CallSettings(ctx, dibs.Reentrant())
			return err
		}))
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = m.CallSettings(cancelled)
		wantErr(t, err, context.Canceled)
		_, err = (*dibs.Client)(nil).Mutex("n").CallSettings(t.Context())
		wantErr(t, err, dibs.ErrInvalid)
		wantErr(t, c.Close())
		_, err = m.CallSettings(t.Context())
		wantErr(t, err, dibs.ErrClosed)
	})
}

// A lease that becomes shared while it reserves fences is not lost: the store refuses only the
// reservation. The same holds for an attached lease.
func TestReserveFencesOfASharedLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &slowReserver{Store: memstore.New(), arrives: make(chan struct{})}
		c := open(t, s)
		m := c.RWMutex("n")
		l, err := m.Writer().Lock(t.Context())
		wantErr(t, err)
		reserved := make(chan error)
		go func() {
			_, err := l.ReserveFences(t.Context(), 3)
			reserved <- err
		}()
		synctest.Wait()
		wantErr(t, l.Downgrade(t.Context()))
		close(s.arrives)
		wantErr(t, <-reserved, dibs.ErrInvalid)
		wantErr(t, l.Err())

		attached, err := c.Attach(t.Context(), l.Handle())
		wantErr(t, err)
		_, err = attached.ReserveFences(t.Context(), 3)
		wantErr(t, err, dibs.ErrInvalid)
		wantErr(t, attached.Err())
		wantErr(t, l.Unlock())
	})
}

type slowReserver struct {
	*memstore.Store
	arrives chan struct{}
}

func (s *slowReserver) ReserveFences(ctx context.Context, r driver.FenceRequest) (driver.FenceReply, error) {
	<-s.arrives
	return s.Store.ReserveFences(ctx, r)
}

// A zero fence is no fence. It hides the outer fence, for FenceOf as for Fence.
func TestWithFenceOfZero(t *testing.T) {
	ctx := dibs.WithFence(dibs.WithFence(t.Context(), "n", 7), "n", 0)
	_, err := dibs.Fence(ctx)
	wantErr(t, err, dibs.ErrInvalid)
	_, err = dibs.FenceOf(ctx, "n")
	wantErr(t, err, dibs.ErrInvalid)
}
