package dibs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/memstore"
)

// A smallStore has no optional interface.
type smallStore struct{ driver.Store }

// With a five-method store, locks, waiting, readers and permits work.
func TestSmallStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, smallStore{memstore.New()})
		l := lock(t, c, "n")
		if _, err := c.Mutex("n").TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("%v, want busy", err)
		}
		begin := time.Now()
		time.AfterFunc(time.Minute, func() { wantErr(t, l.Unlock()) }) // renewed meanwhile
		wantErr(t, c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			if took := time.Since(begin); took != time.Minute {
				t.Errorf("granted after %v, want a minute", took)
			}
			return carried.Yield(ctx, "n")
		}))
		for range 2 {
			if _, err := c.RWMutex("r").Reader().Lock(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := c.Semaphore("s", 3).Permits(1).TryLock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		wantErr(t, c.Check(t.Context()))
	})
}

// Without a Grouper, a multi-lock's names are acquired in turn, and all or none.
func TestMultiMutexOnASmallStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, withoutWith{t, s})
		all, err := c.All([]string{"c", "a", "b"}).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b", "c"} {
			if all.FenceOf(name) == 0 {
				t.Errorf("%q has no fence", name)
			}
		}
		if _, err := c.All([]string{"b", "d"}).TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("%v, want busy", err)
		}
		wantErr(t, all.Unlock())
		time.Sleep(time.Second) // for cancels in the background
		if names, err := s.List(t.Context(), "*"); err != nil || len(names) > 0 {
			t.Errorf("still held: %q, %v", names, err)
		}
	})
}

// withoutWith is a small store that rejects requests for several names.
type withoutWith struct {
	t *testing.T
	driver.Store
}

func (s withoutWith) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if len(r.With) > 0 {
		s.t.Errorf("a request for %q and %q", r.Name, r.With)
	}
	return s.Store.Acquire(ctx, r)
}

// If a store lacks a feature, the error names the store and the way out. It costs no request.
func TestMissingInterfaces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, smallStore{memstore.New()})
		l := lock(t, c, "n")
		rw := c.RWMutex("r")
		reader, err := rw.Reader().Lock(t.Context())
		wantErr(t, err)
		for what, call := range map[string]func() error{
			"upgrade": func() error { return reader.TryUpgrade(t.Context()) },
			"revoke":  func() error { _, err := c.Revoke(t.Context(), "n", dibs.Holder{Fence: l.Fence()}, ""); return err },
			"inspect": func() error { _, err := c.Inspect(t.Context(), "n"); return err },
			"fences":  func() error { _, err := l.ReserveFences(t.Context(), 3); return err },
			"wanted":  func() error { _, err := l.IsWanted(t.Context()); return err },
			"list": func() error {
				for _, err := range c.List(t.Context(), "*") {
					return err
				}
				return nil
			},
		} {
			begin := time.Now()
			err := call()
			if !errors.Is(err, dibs.ErrInvalid) || !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "dibs_test.smallStore") {
				t.Errorf("%s: %v", what, err)
			}
			if took := time.Since(begin); took != 0 {
				t.Errorf("%s: took %v", what, took)
			}
		}
		wantErr(t, l.Err())
		wantErr(t, reader.Err())
	})
}

// A statesOnly returns states, and does not notify holders of waiters.
type statesOnly struct {
	driver.Store
	driver.Inspector
}

// Without a WantedNotifier, a holder learns of a waiter at its next renewal.
func TestWantedByStates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, statesOnly{s, s}), open(t, s)
		l := lock(t, c, "n", dibs.TTL(10*time.Second))
		select {
		case <-l.Wanted():
			t.Fatal("wanted before anybody waits")
		case <-time.After(time.Minute):
		}
		begin := time.Now()
		go func() { _ = other.Mutex("n").Do(t.Context(), func(context.Context) error { return nil }) }()
		<-l.Wanted()
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("known after %v, want the next renewal", took)
		}
		wantErr(t, l.Unlock())
	})
}
