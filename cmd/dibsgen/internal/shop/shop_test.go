package shop

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/memstore"
)

// fake is a Shop that calls a function with each method's name.
type fake struct {
	on func(ctx context.Context, method string) error
}

func (f fake) call(ctx context.Context, method string) error {
	if f.on == nil {
		return nil
	}
	return f.on(ctx, method)
}

func (f fake) Pay(ctx context.Context, o Order) (Receipt, error) {
	return Receipt{len(o.ID)}, f.call(ctx, "Pay")
}
func (f fake) Transfer(ctx context.Context, _, _ string, _ int64) error {
	return f.call(ctx, "Transfer")
}
func (f fake) Archive(ctx context.Context, _ []string) error { return f.call(ctx, "Archive") }
func (f fake) Show(ctx context.Context, page int) (string, error) {
	return string(rune('a' + page)), f.call(ctx, "Show")
}
func (f fake) Publish(ctx context.Context, _ int, _ string) error { return f.call(ctx, "Publish") }
func (f fake) Upload(ctx context.Context, _ string) error         { return f.call(ctx, "Upload") }
func (f fake) Nightly(ctx context.Context) error                  { return f.call(ctx, "Nightly") }
func (f fake) Count(ctx context.Context, shelf string) (int, error) {
	return len(shelf), f.call(ctx, "Count")
}
func (f fake) Stock(ctx context.Context, item string) (int, int, error) {
	return len(item), 2 * len(item), f.call(ctx, "Stock")
}
func (f fake) Ping(ctx context.Context) error { return f.call(ctx, "Ping") }

// bubble runs a test in virtual time, with a client for a store in memory.
func bubble(t *testing.T, test func(t *testing.T, locks *dibs.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		locks := dibs.New(memstore.New())
		t.Cleanup(func() {
			if err := locks.Close(); err != nil {
				t.Error(err)
			}
		})
		test(t, locks)
	})
}

// holders returns a name's holders.
func holders(t *testing.T, locks *dibs.Client, name string) []dibs.Holder {
	t.Helper()
	state, err := locks.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return state.Holders
}

// Each method runs while its names are held, and not after it.
func TestNamesAreHeld(t *testing.T) {
	names := map[string][]string{
		"Pay": {"order:7"}, "Transfer": {"account:a", "account:b"}, "Archive": {"x", "y", "z"}, "Show": {"catalogue"},
		"Publish": {"catalogue"}, "Upload": {"partner"}, "Nightly": {"report:daily"}, "Count": {"stock"}, "Stock": {"item:pen"}, "Ping": nil,
	}
	bubble(t, func(t *testing.T, locks *dibs.Client) {
		called := map[string]bool{}
		s := LockShop(locks, fake{func(ctx context.Context, method string) error {
			called[method] = true
			for _, name := range names[method] {
				if len(holders(t, locks, name)) != 1 || locks.Holds(ctx, name) != nil {
					t.Errorf("%s: %s is not held", method, name)
				}
			}
			if len(names[method]) == 0 && carried.Fence(ctx) != 0 {
				t.Errorf("%s holds a lock", method)
			}
			return nil
		}})
		receipt, payErr := s.Pay(t.Context(), Order{"7"})
		page, showErr := s.Show(t.Context(), 1)
		items, countErr := s.Count(t.Context(), "shelf")
		have, reserved, stockErr := s.Stock(t.Context(), "pen")
		err := errors.Join(payErr, showErr, countErr, stockErr, s.Transfer(t.Context(), "a", "b", 1), s.Archive(t.Context(), []string{"x", "y", "z"}),
			s.Publish(t.Context(), 1, ""), s.Upload(t.Context(), "f"), s.Nightly(t.Context()), s.Ping(t.Context()))
		if err != nil {
			t.Error(err)
		}
		if receipt.Number != 1 || page != "b" || items != 5 || have != 3 || reserved != 6 {
			t.Errorf("results %v, %s, %d, %d, %d", receipt, page, items, have, reserved)
		}
		for method, held := range names {
			if !called[method] {
				t.Errorf("%s was not called", method)
			}
			for _, name := range held {
				if method != "Nightly" && method != "Count" && len(holders(t, locks, name)) != 0 { // the jobs reserve their names
					t.Errorf("%s: %s is still held", method, name)
				}
			}
		}
	})
}

// The decorator returns the method's errors and values.
func TestErrorsAreReturned(t *testing.T) {
	bubble(t, func(t *testing.T, locks *dibs.Client) {
		broken := errors.New("broken")
		s := LockShop(locks, fake{func(context.Context, string) error { return broken }})
		receipt, payErr := s.Pay(t.Context(), Order{"42"})
		items, countErr := s.Count(t.Context(), "shelf")
		_, _, stockErr := s.Stock(t.Context(), "pen")
		for method, err := range map[string]error{
			"Pay": payErr, "Count": countErr, "Stock": stockErr, "Nightly": s.Nightly(t.Context()), "Ping": s.Ping(t.Context()),
			"Transfer": s.Transfer(t.Context(), "a", "b", 1), "Upload": s.Upload(t.Context(), "f"),
		} {
			if !errors.Is(err, broken) {
				t.Errorf("%s: want the error of the method, have %v", method, err)
			}
		}
		if receipt.Number != 2 || items != 5 {
			t.Errorf("want the values beside the error, have %v, %d", receipt, items)
		}
	})
}

// A job that another process has run returns zero values and ErrSkipped.
func TestOnce(t *testing.T) {
	bubble(t, func(t *testing.T, locks *dibs.Client) {
		var runs atomic.Int32
		s := LockShop(locks, fake{func(context.Context, string) error { runs.Add(1); return nil }})
		for run := range 3 {
			if err := s.Nightly(t.Context()); errors.Is(err, dibs.ErrSkipped) != (run > 0) {
				t.Errorf("run %d: %v", run, err)
			}
		}
		first, err := s.Count(t.Context(), "shelf")
		second, again := s.Count(t.Context(), "shelf")
		if err != nil || !errors.Is(again, dibs.ErrSkipped) || first != 5 || second != 0 {
			t.Errorf("want 5 and 0, have %d, %v and %d, %v", first, err, second, again)
		}
		if n := runs.Load(); n != 2 {
			t.Errorf("want 2 runs, have %d", n)
		}
		time.Sleep(time.Hour)
		if err := s.Nightly(t.Context()); err != nil || runs.Load() != 3 {
			t.Errorf("want a run after the interval, have %d, %v", runs.Load(), err)
		}
	})
}

// Readers and permits are shared, a writer is not.
func TestSharedLocks(t *testing.T) {
	bubble(t, func(t *testing.T, locks *dibs.Client) {
		var now, most atomic.Int32
		s := LockShop(locks, fake{func(context.Context, string) error {
			n := now.Add(1)
			defer now.Add(-1)
			for last := most.Load(); last < n && !most.CompareAndSwap(last, n); last = most.Load() {
			}
			time.Sleep(time.Second)
			return nil
		}})
		for name, c := range map[string]struct {
			call func() error
			most int32
		}{
			"readers": {func() error { _, err := s.Show(t.Context(), 1); return err }, 10},
			"writers": {func() error { return s.Publish(t.Context(), 1, "") }, 1},
			"permits": {func() error { return s.Upload(t.Context(), "f") }, 4},
		} {
			most.Store(0)
			done := make(chan error)
			for range 10 {
				go func() { done <- c.call() }()
			}
			for range 10 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			if have := most.Load(); have != c.most {
				t.Errorf("%s: want %d at the same time, have %d", name, c.most, have)
			}
		}
	})
}

// A directive's option wins over the same option for the constructor. The others apply.
func TestOptions(t *testing.T) {
	bubble(t, func(t *testing.T, locks *dibs.Client) {
		seen := map[string]time.Duration{}
		var labels []string
		s := LockShop(locks, fake{func(_ context.Context, method string) error {
			if method == "Pay" || method == "Stock" {
				name := map[string]string{"Pay": "order:7", "Stock": "item:pen"}[method]
				h := holders(t, locks, name)[0]
				seen[method] = h.Remaining
				labels = append(labels, h.Label)
			}
			return nil
		}}, dibs.TTL(time.Minute), dibs.Label("outer"), dibs.Wait(7*time.Second))
		_, payErr := s.Pay(t.Context(), Order{"7"})
		_, _, stockErr := s.Stock(t.Context(), "pen")
		if err := errors.Join(payErr, stockErr); err != nil {
			t.Fatal(err)
		}
		if seen["Pay"] != time.Minute || seen["Stock"] != 20*time.Second || !slices.Equal(labels, []string{"outer", "stock"}) {
			t.Errorf("want 1m outer and 20s stock, have %v %q", seen, labels)
		}
	})
	waits := map[string]struct {
		name string
		call func(context.Context, Shop) error
		wait time.Duration
	}{
		"Pay":      {"order:7", func(ctx context.Context, s Shop) error { _, err := s.Pay(ctx, Order{"7"}); return err }, 3 * time.Second},
		"Transfer": {"account:b", func(ctx context.Context, s Shop) error { return s.Transfer(ctx, "a", "b", 1) }, 3 * time.Second},
		"Archive":  {"x", func(ctx context.Context, s Shop) error { return s.Archive(ctx, []string{"x"}) }, time.Second},
		"Upload":   {"partner", func(ctx context.Context, s Shop) error { return s.Upload(ctx, "f") }, time.Minute},
		"Publish":  {"catalogue", func(ctx context.Context, s Shop) error { return s.Publish(ctx, 1, "") }, 7 * time.Second},
		"Show":     {"catalogue", func(ctx context.Context, s Shop) error { _, err := s.Show(ctx, 1); return err }, 7 * time.Second},
		"Stock":    {"item:pen", func(ctx context.Context, s Shop) error { _, _, err := s.Stock(ctx, "pen"); return err }, 200 * time.Millisecond},
		"Nightly":  {"report:daily", func(ctx context.Context, s Shop) error { return s.Nightly(ctx) }, 0},
	}
	for method, c := range waits {
		t.Run(method, func(t *testing.T) {
			bubble(t, func(t *testing.T, locks *dibs.Client) {
				lease, err := locks.Mutex(c.name).Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				s := LockShop(locks, fake{func(context.Context, string) error { t.Error("called without its lock"); return nil }}, dibs.Wait(7*time.Second))
				begin := time.Now()
				err = c.call(t.Context(), s)
				if busy := method != "Nightly"; errors.Is(err, dibs.ErrBusy) != busy {
					t.Errorf("have %v", err)
				}
				if waited := time.Since(begin); waited != c.wait {
					t.Errorf("want a wait of %v, have %v", c.wait, waited)
				}
				if err := lease.Unlock(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The caller can change its slice of options afterwards.
func TestOptionsAreCopied(t *testing.T) {
	bubble(t, func(t *testing.T, locks *dibs.Client) {
		options := []dibs.Option{dibs.Label("mine")}
		s := LockShop(locks, fake{func(context.Context, string) error {
			if h := holders(t, locks, "catalogue"); h[0].Label != "mine" {
				t.Errorf("have label %s", h[0].Label)
			}
			return nil
		}}, options...)
		options[0] = dibs.Label("yours")
		if err := s.Publish(t.Context(), 1, ""); err != nil {
			t.Error(err)
		}
	})
}

// The options of the constructor are those of the lock, and the directive is nearer: its Wait replaces
// the Attempts of the constructor.
func TestDirectiveIsNearer(t *testing.T) {
	bubble(t, func(t *testing.T, locks *dibs.Client) {
		s := LockShop(locks, fake{}, dibs.Attempts(3, time.Second))
		if err := s.Transfer(t.Context(), "a", "b", 1); err != nil {
			t.Errorf("a multi-lock: %v", err)
		}
		if _, err := s.Pay(t.Context(), Order{"7"}); err != nil {
			t.Errorf("a mutex: %v", err)
		}
	})
}

// No names are an error, as in Client.All.
func TestNoNames(t *testing.T) {
	bubble(t, func(t *testing.T, locks *dibs.Client) {
		if err := LockShop(locks, fake{}).Archive(t.Context(), nil); !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("want ErrInvalid, have %v", err)
		}
	})
}
