package dibs_test

import (
	"context"
	"errors"
	"math"
	"slices"
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
		return unlocked(c.RWMutex("n", lock...).Writer().Lock(ctx, call...))
	},
	"reader": func(ctx context.Context, c *dibs.Client, lock, call []dibs.Option) error {
		return unlocked(c.RWMutex("n", lock...).Reader().Lock(ctx, call...))
	},
	"TryRLock": func(ctx context.Context, c *dibs.Client, lock, call []dibs.Option) error {
		return unlocked(c.RWMutex("n", lock...).Reader().TryLock(ctx, call...))
	},
	"semaphore": func(ctx context.Context, c *dibs.Client, lock, call []dibs.Option) error {
		return unlocked(c.Semaphore("n", 2, lock...).Permits(1).Lock(ctx, call...))
	},
	"multi-lock": func(ctx context.Context, c *dibs.Client, lock, call []dibs.Option) error {
		return unlocked(c.All([]string{"m", "n"}, lock...).Lock(ctx, call...))
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
		if l == nil { // an option for New is bad: the other uses report it
			return errors.Join(dibs.ErrInvalid)
		}
		defer l.Detach()
		return unlocked(c.Attach(ctx, l.Handle(), call...))
	},
}

func lockAny(ctx context.Context, c *dibs.Client) *dibs.Lease {
	l, err := c.Mutex("n").Lock(ctx)
	if err != nil {
		return nil
	}
	return l
}

// A client's default applies to the locks that can use it, and breaks no other lock.
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
				for _, call := range [][]dibs.Option{nil, {dibs.TTL(200 * time.Millisecond)}, {dibs.OwnerToken("request-1")}, {dibs.NoRenew()}, {dibs.MinHold(time.Second)}} {
					if name == "Attach" || name == "Once" && slices.Contains(call, dibs.MinHold(time.Second)) {
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
