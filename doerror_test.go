package dibs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// doers returns each primitive with names that begin with n, and their names in a DoError.
func doers(c *dibs.Client) map[string]dibs.Doer {
	return map[string]dibs.Doer{
		"mutex": c.Mutex("n"), "writer": c.RWMutex("n").Writer(), "reader": c.RWMutex("n").Reader(),
		"semaphore": c.Semaphore("n", 2).Permits(1), "multi-lock": c.All([]string{"n", "o"}), "once": c.Once("n", time.Minute),
	}
}

// The outermost error says whether the function ran, and separates the function's error from the
// lock's.
func TestDoError(t *testing.T) {
	failed := errors.New("failed")
	nested := &dibs.BusyError{Name: "nested", Holder: "h:1:x"} // as from a nested lock
	for name := range doers(nil) {
		for what, test := range map[string]struct {
			prepare func(t *testing.T, c, other *dibs.Client)
			fn      func(ctx context.Context) error
			options []dibs.Option

			ran        bool
			work, lock error
		}{
			"work":    {nil, func(context.Context) error { return failed }, nil, true, failed, nil},
			"nested":  {nil, func(context.Context) error { return nested }, nil, true, dibs.ErrBusy, nil},
			"invalid": {nil, nothing, []dibs.Option{dibs.TTL(-1)}, false, nil, dibs.ErrInvalid},
			"no fn":   {nil, nil, nil, false, nil, dibs.ErrInvalid},
			"closed":  {func(t *testing.T, c, _ *dibs.Client) { wantErr(t, c.Close()) }, nothing, nil, false, nil, dibs.ErrClosed},
			"busy": {func(t *testing.T, _, other *dibs.Client) { lock(t, other, "n") }, nothing,
				[]dibs.Option{dibs.Timeout(time.Second)}, false, nil, dibs.ErrBusy},
			"lost": {nil, func(ctx context.Context) error { <-ctx.Done(); return failed }, []dibs.Option{dibs.MaxHold(time.Hour)}, true, failed, dibs.ErrLost},
			"lost only": {nil, func(ctx context.Context) error { <-ctx.Done(); return nil }, []dibs.Option{dibs.MaxHold(time.Hour)},
				true, nil, dibs.ErrLost},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					s := memstore.New()
					c, other := open(t, s, dibs.Wait(time.Second)), open(t, s)
					if test.prepare != nil {
						test.prepare(t, c, other)
					}
					err := doers(c)[name].Do(t.Context(), test.fn, test.options...)
					do, ok := errors.AsType[*dibs.DoError](err)
					if !ok || error(do) != err { //nolint:errorlint // the outermost error
						t.Fatalf("error %T %v, want a DoError", err, err)
					}
					if do.Name != "n" || do.Ran != test.ran || !errors.Is(do.Work, test.work) || !errors.Is(do.Lock, test.lock) {
						t.Errorf("%+v, want ran %v, work %v, lock %v", do, test.ran, test.work, test.lock)
					}
					for _, want := range []error{test.work, test.lock} {
						if want != nil && !errors.Is(err, want) {
							t.Errorf("errors.Is does not find %v in %v", want, err)
						}
					}
					for _, err := range do.Unwrap() {
						if err == nil {
							t.Error("it unwraps to nil")
						}
					}
				})
			})
		}
	}
}

// The message contains the work's error, the lock's, or both, without repetition.
func TestDoErrorMessage(t *testing.T) {
	work := errors.New("declined")
	lost := &dibs.LostError{Name: "n", Reason: dibs.ReasonExpired}
	for _, test := range []struct {
		err  dibs.DoError
		want string
	}{
		{dibs.DoError{Name: "n", Ran: true, Work: work}, "declined"},
		{dibs.DoError{Name: "n", Lock: lost}, lost.Error()},
		{dibs.DoError{Name: "n", Ran: true, Work: work, Lock: lost}, "declined; " + lost.Error()},
		{dibs.DoError{Name: "n", Ran: true, Work: lost, Lock: lost}, lost.Error()},
		{dibs.DoError{Name: "n"}, `dibs: work under "n" failed`},
	} {
		if have := test.err.Error(); have != test.want {
			t.Errorf("%q, want %q", have, test.want)
		}
	}
}

// With nested calls, errors.As finds the outer error first: its function did run.
func TestNestedDoError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		lock(t, open(t, s), "inner")
		err := c.Mutex("outer").Do(t.Context(), func(ctx context.Context) error {
			return c.Mutex("inner").Do(ctx, nothing, dibs.Wait(0))
		})
		var outer, inner *dibs.DoError
		if !errors.As(err, &outer) || outer.Name != "outer" || !outer.Ran || outer.Lock != nil {
			t.Fatalf("%+v, want that of the outer call", outer)
		}
		if !errors.As(outer.Work, &inner) || inner.Name != "inner" || inner.Ran {
			t.Errorf("%+v, want that of the inner call", inner)
		}
		wantErr(t, err, dibs.ErrBusy)
	})
}

// Call and Wrap return Do's error, also for nil arguments.
func TestDoErrorOfCallAndWrap(t *testing.T) {
	c := open(t, unusedStore{t})
	number := func(context.Context) (int, error) { return 1, nil }
	_, call := dibs.Call[int](t.Context(), c.Mutex("n"), nil)
	_, noLock := dibs.Call(t.Context(), nil, number)
	_, badName := dibs.Call(t.Context(), c.Mutex(""), number)
	mutex := func(string) dibs.Doer { return c.Mutex("n") }
	_, wrapCall := dibs.WrapCall[string, int](mutex, nil)(t.Context(), "x")
	_, wrapCallNoLock := dibs.WrapCall[string, int](nil, nil)(t.Context(), "x")
	for what, err := range map[string]error{
		"Call": call, "Call without a lock": noLock, "Call of a bad name": badName, "Wrap": dibs.Wrap[string](mutex, nil)(t.Context(), "x"),
		"Wrap without a lock": dibs.Wrap[string](nil, nil)(t.Context(), "x"), "WrapCall": wrapCall, "WrapCall without a lock": wrapCallNoLock,
	} {
		do, ok := errors.AsType[*dibs.DoError](err)
		if !ok || error(do) != err || do.Ran || !errors.Is(do.Lock, dibs.ErrInvalid) { //nolint:errorlint // the outermost error itself
			t.Errorf("%s: %T %v, want a DoError that did not run", what, err, err)
		}
	}
}
