package nested

import (
	"context"
	"time"

	"github.com/dibslock/dibs"
)

func together(ctx context.Context, locks *dibs.Client) error {
	return locks.All("a", "b").Do(ctx, move)
}

func oneAfterAnother(ctx context.Context, locks *dibs.Client) error {
	if err := locks.Mutex("a").Do(ctx, move); err != nil {
		return err
	}
	return locks.Mutex("b").Do(ctx, move)
}

// The inner name is known only under the outer lock.
func knownInside(ctx context.Context, locks *dibs.Client, next func(context.Context) string) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		return locks.Mutex(next(ctx)).Do(ctx, move)
	})
}

func inLoop(ctx context.Context, locks *dibs.Client, names []string) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		for range names {
			if err := locks.Mutex("b").Do(ctx, move); err != nil {
				return err
			}
		}
		return nil
	})
}

// The inner lock is not always needed.
func sometimes(ctx context.Context, locks *dibs.Client, both bool) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		if both {
			return locks.Mutex("b").Do(ctx, move)
		}
		return nil
	})
}

func afterReturn(ctx context.Context, locks *dibs.Client, both bool) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		if !both {
			return nil
		}
		return locks.Mutex("b").Do(ctx, move)
	})
}

func inSwitch(ctx context.Context, locks *dibs.Client, n int) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		switch n {
		case 1:
			return locks.Mutex("b").Do(ctx, move)
		}
		return nil
	})
}

func otherKinds(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		if err := locks.Semaphore("permits", 4).Do(ctx, move); err != nil {
			return err
		}
		return nil
	})
}

func reader(ctx context.Context, locks *dibs.Client) error {
	return locks.RWMutex("a").Reading().Do(ctx, func(ctx context.Context) error {
		return locks.Mutex("b").Do(ctx, move)
	})
}

func innerReader(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		return locks.RWMutex("b").Reading().Do(ctx, move)
	})
}

func permits(ctx context.Context, locks *dibs.Client) error {
	return locks.Semaphore("permits", 4).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex("b").Do(ctx, move)
	})
}

func leader(ctx context.Context, locks *dibs.Client) error {
	return locks.Election("a").Run(ctx, func(ctx context.Context) error {
		return locks.Mutex("b").Do(ctx, move)
	})
}

func job(ctx context.Context, locks *dibs.Client) (bool, error) {
	return locks.Once("a", time.Hour).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex("b").Do(ctx, move)
	})
}

func tries(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		lease, err := locks.Mutex("b").TryLock(ctx)
		if err != nil {
			return err
		}
		return lease.Unlock()
	})
}

func otherClient(ctx context.Context, locks, others *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		return others.Mutex("b").Do(ctx, move)
	})
}

func otherBank(ctx context.Context, x, y *bank) error {
	return x.locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		return y.locks.Mutex("b").Do(ctx, move)
	})
}

// It returns ErrReentrant.
func sameName(ctx context.Context, locks *dibs.Client, name string) error {
	return locks.Mutex(name).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex(name).Do(ctx, move)
	})
}

func reentrant(ctx context.Context, locks *dibs.Client, x, y string) error {
	return locks.Mutex(x).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex(y).Do(ctx, move, dibs.Reentrant())
	})
}

func inGoroutine(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		go func() { _ = locks.Mutex("b").Do(ctx, move) }()
		return nil
	})
}

func unknownLock(ctx context.Context, a, b dibs.Doer) error {
	return a.Do(ctx, func(ctx context.Context) error { return b.Do(ctx, move) })
}
