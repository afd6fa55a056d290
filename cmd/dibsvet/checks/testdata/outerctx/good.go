package outerctx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dibslock/dibs"
)

func ownParameter(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error { return save(ctx) })
}

func derivedInside(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		limited, cancel := context.WithTimeout(inner, time.Second)
		defer cancel()
		return save(limited)
	})
}

func assignedInside(ctx context.Context, locks *dibs.Client) error {
	var work context.Context
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		work = context.WithValue(inner, key{}, 1)
		return save(work)
	})
}

func bothAssignedInside(ctx context.Context, locks *dibs.Client) error {
	var work context.Context
	var cancel context.CancelFunc
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		work, cancel = context.WithTimeout(inner, time.Second)
		defer cancel()
		return save(work)
	})
}

type key struct{}

func onPurpose(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		if err := save(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		return save(context.Background())
	})
}

func detachedOutside(ctx context.Context, locks *dibs.Client) error {
	audit := context.WithoutCancel(ctx)
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error { return save(audit) })
}

func questions(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		stop := context.AfterFunc(ctx, func() {})
		defer stop()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-inner.Done():
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Println(ctx)
		return nil
	})
}

func outlives(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		go save(ctx)
		go func() { _ = save(ctx) }()
		return save(inner)
	})
}

func cleanUp(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		defer save(ctx, "rollback")
		defer func() { _ = save(ctx, "close") }()
		return save(inner)
	})
}

func afterTheEnd(ctx context.Context, locks *dibs.Client) error {
	return locks.Election("a").Run(ctx, func(term context.Context) error {
		err := save(term)
		if errors.Is(err, dibs.ErrLost) {
			return save(ctx, "lost")
		}
		if term.Err() != nil {
			return save(ctx, "over")
		}
		if errors.Is(err, context.Canceled) {
			return save(ctx, "cancelled")
		}
		select {
		case <-term.Done():
			return save(ctx, "done")
		case <-time.After(time.Second):
		}
		return err
	})
}

func valuesOnly(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		slog.InfoContext(ctx, "locked")
		requestFromContext(ctx)
		return save(inner)
	})
}

func requestFromContext(ctx context.Context) any { return ctx.Value(key{}) }

func bothFences(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(a context.Context) error {
		return locks.Semaphore("b", 2).Permits(1).Do(a, func(b context.Context) error {
			outer, err := dibs.Fence(a)
			if err != nil {
				return err
			}
			same, err := dibs.FenceOf(a, "a")
			if err != nil {
				return err
			}
			lease, err := dibs.LeaseOf(a, "a")
			if err != nil {
				return err
			}
			return save(b, outer, same, lease.Fence())
		})
	})
}

func joined(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		lease, err := locks.Semaphore("b", 2).Permits(2).Lock(inner)
		if err != nil {
			return err
		}
		defer lease.Unlock()
		both, cancel := dibs.WithLease(ctx, lease)
		defer cancel()
		return save(both)
	})
}

// It is not a lock of dibs.
type otherMutex struct{}

func (otherMutex) Do(ctx context.Context, fn func(ctx context.Context) error) error { return fn(ctx) }

func otherLibrary(ctx context.Context) error {
	return otherMutex{}.Do(ctx, func(inner context.Context) error { return save(ctx) })
}

func outsideTheFunction(ctx context.Context, locks *dibs.Client) error {
	if err := save(ctx); err != nil {
		return err
	}
	err := locks.Mutex("a").Do(ctx, func(ctx context.Context) error { return save(ctx) })
	return errors.Join(err, save(ctx))
}

func declaredElsewhere(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, elsewhere)
}

func elsewhere(ctx context.Context) error { return save(ctx) }

func underALease(ctx context.Context, locks *dibs.Client) error {
	lease, err := locks.Mutex("a").Lock(ctx)
	if err != nil {
		return err
	}
	return errors.Join(save(lease.Context()), lease.Unlock())
}

// The lock function of Wrap has no context of its own.
func lockFunction(ctx context.Context, locks *dibs.Client) func(context.Context, string) error {
	lock := func(id string) dibs.Doer {
		_ = save(ctx, id)
		return locks.Mutex(id)
	}
	return dibs.Wrap(lock, func(ctx context.Context, id string) error { return save(ctx, id) })
}

func hooks(ctx context.Context, locks *dibs.Client) *dibs.Mutex {
	return locks.Mutex("a", dibs.Observe(dibs.Hooks{Lost: func(inner context.Context, e dibs.Lost) { _ = save(ctx) }}))
}
