package dibs_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// A use acquires and releases a lock with options at the three levels.
type use func(ctx context.Context, c *dibs.Client, lock, call []dibs.Option) error

func unlocked(l *dibs.Lease, err error) error {
	if err != nil {
		return err
	}
	return l.Unlock()
}

func nothing(context.Context) error { return nil }

// uses are all ways to use options.
var uses = map[string]use{
	"Lock": func(ctx context.Context, c *dibs.Client, lock, call []dibs.Option) error {
		return unlocked(c.Mutex("n", lock...).Lock(ctx, call...))
	},
	"TryLock": func(ctx context.Context, c *dibs.Client, lock, call []dibs.Option) error {
		return unlocked(c.Mutex("n", lock...).TryLock(ctx, call...))
	},
	"Do": func(ctx context.Context, c *dibs.Client, lock, call []dibs.Option) error {
		return c.Mutex("n", lock...).Do(ctx, nothing, call...)
	},
	"writer": func(ctx context.Context, c *dibs.Client, lock, call []dibs.Option) error {
		return unlocked(c.RWMutex("n", lock...).Lock(ctx, call...))
	},
	"reader": func(ctx context.Context, c *dibs.Client, lock, call []dibs.Option) error {
		return unlocked(c.RWMutex("n", lock...).RLock(ctx, call...))
	},
	"TryRLock": func(ctx context.Context, c *dibs.Client, lock, call []dibs.Option) error {
		return unlocked(c.RWMutex("n", lock...).TryRLock(ctx, call...))
	},
	"semaphore": func(ctx context.Context, c *dibs.Client, lock, call []dibs.Option) error {
		return unlocked(c.Semaphore("n", 2, lock...).Acquire(ctx, 1, call...))
	},
	"multi-lock": func(ctx context.Context, c *dibs.Client, _, call []dibs.Option) error {
		return unlocked(c.All("m", "n").Lock(ctx, call...))
	},
	"election": func(ctx context.Context, c *dibs.Client, lock, call []dibs.Option) error {
		return unlocked(c.Election("n", lock...).Campaign(ctx, call...))
	},
	"Run": func(ctx context.Context, c *dibs.Client, lock, call []dibs.Option) error {
		return c.Election("n", lock...).Run(ctx, nothing, call...)
	},
	"Once": func(ctx context.Context, c *dibs.Client, lock, call []dibs.Option) error {
		return c.Once("n", 10*time.Millisecond, lock...).Do(ctx, nothing, call...)
	},
	"Attach": func(ctx context.Context, c *dibs.Client, _, call []dibs.Option) error {
		l := lockAny(ctx, c)
		if l == nil { // an option of New is bad: the other uses report it
			return errors.Join(dibs.ErrInvalid)
		}
		defer l.Detach()
		return unlocked(c.Attach("n", l.Token(), call...))
	},
}

func lockAny(ctx context.Context, c *dibs.Client) *dibs.Lease {
	l, err := c.Mutex("n").Lock(ctx)
	if err != nil {
		return nil
	}
	return l
}

// An option that would be ignored is rejected, if it was given to the lock or the call itself.
func TestNoOptionIsIgnored(t *testing.T) {
	for what, test := range map[string]struct {
		options  []dibs.Option
		rejected []string
	}{
		"Wait":      {[]dibs.Option{dibs.Wait(time.Second)}, []string{"Once", "Attach"}},
		"Attempts":  {[]dibs.Option{dibs.Attempts(2, time.Second)}, []string{"Once", "Attach"}},
		"TTL":       {[]dibs.Option{dibs.TTL(time.Minute)}, []string{"Attach"}},
		"MinHold":   {[]dibs.Option{dibs.MinHold(time.Second)}, []string{"Once", "Attach"}},
		"Label":     {[]dibs.Option{dibs.Label("web")}, []string{"Attach"}},
		"Reentrant": {[]dibs.Option{dibs.Reentrant()}, []string{"Attach"}},
		"RetryFailed": {[]dibs.Option{dibs.RetryFailed()}, []string{
			"Lock", "TryLock", "Do", "writer", "reader", "TryRLock", "semaphore", "multi-lock", "election", "Run", "Attach",
		}},
		"Timeout": {[]dibs.Option{dibs.Timeout(2 * time.Second)}, nil},
		"MaxHold": {[]dibs.Option{dibs.MaxHold(time.Hour)}, nil},
		"NoRenew": {[]dibs.Option{dibs.NoRenew()}, nil},
		"Observe": {[]dibs.Option{dibs.Observe(dibs.Hooks{})}, nil},
	} {
		bubble(t, func(t *testing.T) {
			for name, use := range uses {
				try, waits := strings.HasPrefix(name, "Try"), what == "Wait" || what == "Attempts"
				rejected := slices.Contains(test.rejected, name)
				if name != "multi-lock" && name != "Attach" { // they take options in calls only
					err := use(t.Context(), open(t, memstore.New()), test.options, nil)
					if errors.Is(err, dibs.ErrInvalid) != rejected {
						t.Errorf("%s given to the lock, %s: %v; want ErrInvalid: %v", what, name, err, rejected)
					}
				}
				err := use(t.Context(), open(t, memstore.New()), nil, test.options)
				if want := rejected || try && waits; errors.Is(err, dibs.ErrInvalid) != want {
					t.Errorf("%s given to the call, %s: %v; want ErrInvalid: %v", what, name, err, want)
				}
			}
		})
	}
}

// A default of the client applies to the locks that can use it, and breaks no other one.
func TestDefaultsOfTheClientBreakNoLock(t *testing.T) {
	for what, option := range map[string]dibs.Option{
		"Wait":            dibs.Wait(time.Second),
		"Attempts":        dibs.Attempts(2, time.Second),
		"TTL":             dibs.TTL(time.Second),
		"MinHold":         dibs.MinHold(time.Millisecond),
		"RetryFailed":     dibs.RetryFailed(),
		"Label":           dibs.Label("web"),
		"Reentrant":       dibs.Reentrant(),
		"NoRenew":         dibs.NoRenew(),
		"MaxHold":         dibs.MaxHold(time.Minute),
		"Timeout":         dibs.Timeout(time.Second),
		"longest MaxHold": dibs.MaxHold(math.MaxInt64),
	} {
		bubble(t, func(t *testing.T) {
			for name, use := range uses {
				for _, call := range [][]dibs.Option{nil, {dibs.TTL(200 * time.Millisecond)}, {dibs.Token("request-1")}, {dibs.NoRenew()}, {dibs.MinHold(time.Second)}} {
					if name == "Attach" || name == "Once" {
						call = nil
					}
					c := open(t, memstore.New(), option)
					wantErr(t, use(t.Context(), c, nil, call))
					wantErr(t, c.Close())
					if t.Failed() {
						t.Fatalf("%s given to New, %s", what, name)
					}
				}
			}
		})
	}
}
