package dibs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

func TestWrap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, other := open(t, memstore.New()), context.Background()
		type order struct{ id string }
		lock := func(o order) dibs.Doer { return c.Mutex("order:" + o.id) }
		failed := errors.New("failed")
		pay := dibs.Wrap(lock, func(ctx context.Context, o order) error {
			if _, err := c.Mutex("order:" + o.id).TryLock(other); !errors.Is(err, dibs.ErrBusy) {
				t.Errorf("the lock of %q: %v, want ErrBusy", o.id, err)
			}
			if fenceIn(t, ctx) == 0 {
				t.Error("no fence")
			}
			if o.id == "bad" {
				return failed
			}
			return nil
		}, dibs.Wait(0))
		wantErr(t, pay(t.Context(), order{"42"}))
		wantErr(t, pay(t.Context(), order{"bad"}), failed)

		count := dibs.WrapCall(lock, func(_ context.Context, o order) (int, error) { return len(o.id), nil })
		if n, err := count(t.Context(), order{"42"}); n != 2 || err != nil {
			t.Errorf("%d, %v, want 2", n, err)
		}
		held := lock(order{"7"})
		wantErr(t, held.Do(t.Context(), func(context.Context) error { return pay(other, order{"7"}) }), dibs.ErrBusy)

		none := func(order) dibs.Doer { return nil }
		for name, call := range map[string]func() error{
			"nil function": func() error { return dibs.Wrap[order](lock, nil)(t.Context(), order{}) },
			"nil lock": func() error {
				return dibs.Wrap(none, func(context.Context, order) error { return nil })(t.Context(), order{})
			},
			"no lock": func() error {
				return dibs.Wrap(nil, func(context.Context, order) error { return nil })(t.Context(), order{})
			},
			"nil call": func() error {
				_, err := dibs.WrapCall[order, int](lock, nil)(t.Context(), order{"1"})
				return err
			},
		} {
			if err := call(); !errors.Is(err, dibs.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
	})
}

// A call that tries once ignores an outer level's Wait and Attempts. Given directly to that call,
// they are an error.
func TestOptionsOfTry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New(), dibs.Wait(5*time.Millisecond))
		for name, try := range map[string]func(options ...dibs.Option) (*dibs.Lease, error){
			"mutex": func(o ...dibs.Option) (*dibs.Lease, error) {
				return c.Mutex("a", dibs.Attempts(3, 0)).TryLock(t.Context(), o...)
			},
			"reader": func(o ...dibs.Option) (*dibs.Lease, error) { return c.RWMutex("b").Reader().TryLock(t.Context(), o...) },
			"writer": func(o ...dibs.Option) (*dibs.Lease, error) { return c.RWMutex("c").Writer().TryLock(t.Context(), o...) },
			"semaphore": func(o ...dibs.Option) (*dibs.Lease, error) {
				return c.Semaphore("d", 2).Permits(1).TryLock(t.Context(), o...)
			},
			"multi": func(o ...dibs.Option) (*dibs.Lease, error) {
				return c.All([]string{"e", "f"}).TryLock(t.Context(), o...)
			},
		} {
			l, err := try()
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			wantErr(t, l.Unlock())
			for _, o := range []dibs.Option{dibs.Wait(0), dibs.Wait(time.Millisecond), dibs.Attempts(2, 0)} {
				_, err := try(o)
				if !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), "given to a Try call on ") {
					t.Errorf("%s: %v, want ErrInvalid", name, err)
				}
			}
		}
	})
}

func TestTokenGivenToNew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New(), dibs.OwnerToken("one for all"))
		_, err := c.Mutex("a").Lock(t.Context())
		wantErr(t, err, dibs.ErrInvalid)
		l, err := open(t, memstore.New()).Mutex("a").Lock(t.Context(), dibs.OwnerToken(strings.Repeat("t", 256)))
		wantErr(t, err)
		wantErr(t, l.Unlock())
	})
}

func TestEndedContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New())
		why := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		_, err := c.Mutex("a").Lock(ctx)
		wantErr(t, err, why)
		if errors.Is(err, dibs.ErrBusy) || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("error %v: no request was sent, so no holder is known", err)
		}
	})
}

func TestCheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		c := open(t, f)
		wantErr(t, c.Check(t.Context()))
		f.hangAll()
		wantErr(t, c.Check(t.Context()), dibs.ErrUnavailable)
		f.heal()
		wantErr(t, c.Close())
		wantErr(t, c.Check(t.Context()), dibs.ErrClosed)
	})
}

// Check reports invalid options for New, without a request.
func TestCheckReportsOptionsOfNew(t *testing.T) {
	for want, option := range map[string]dibs.Option{
		"TTL 0s given to New: not within 10ms to 24h0m0s":                            dibs.TTL(0),
		"Wait 3ns given to New: below 1ms; is the unit missing?":                     dibs.Wait(3),
		"Timeout 0s given to New: below 1ms":                                         dibs.Timeout(0),
		"OwnerToken given to New: it identifies one lease; give it to the call that": dibs.OwnerToken("request-1"),
	} {
		err := open(t, unusedStore{t}, option).Check(t.Context())
		if !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	wantErr(t, (*dibs.Client)(nil).Check(t.Context()), dibs.ErrInvalid)
}

func TestResignEndsOwnTermsOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New())
		l := lock(t, c, "a")
		if c.Election("a").Resign() || l.Context().Err() != nil {
			t.Error("a mutex of that name resigned")
		}
		wantErr(t, l.Unlock())
		e := c.Election("a")
		term, err := e.Campaign(t.Context())
		wantErr(t, err)
		if c.Election("a").Resign() || term.Context().Err() != nil {
			t.Error("another candidate of this Client ended the term")
		}
		if !e.Resign() || !errors.Is(context.Cause(term.Context()), dibs.ErrResigned) {
			t.Errorf("the term did not end: %v", context.Cause(term.Context()))
		}
		wantErr(t, term.Unlock())
	})
}
