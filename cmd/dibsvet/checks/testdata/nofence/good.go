package nofence

import (
	"context"
	"database/sql"

	"github.com/dibslock/dibs"
)

func fenced(ctx context.Context, locks *dibs.Client, db *sql.DB) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		fence, err := dibs.Fence(ctx)
		if err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, "UPDATE accounts SET balance = 0, fence = $1 WHERE fence <= $1", fence)
		return err
	})
}

func fencedByName(ctx context.Context, locks *dibs.Client, c cache) error {
	return locks.All([]string{"a", "b"}).Do(ctx, func(ctx context.Context) error {
		fence, err := dibs.FenceOf(ctx, "a")
		if err != nil {
			return err
		}
		return c.Set(ctx, "a", fence)
	})
}

func checked(ctx context.Context, locks *dibs.Client, lease *dibs.Lease, c cache) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		if err := lease.Err(); err != nil {
			return err
		}
		return c.Set(ctx, "a", 1)
	})
}

func deepFence(ctx context.Context, locks *dibs.Client, c cache) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error { return storeWithFence(ctx, c) })
}

func storeWithFence(ctx context.Context, c cache) error {
	fence, err := dibs.Fence(ctx)
	if err != nil {
		return err
	}
	return c.Set(ctx, "a", fence)
}

func reads(ctx context.Context, locks *dibs.Client, c cache) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		_, err := c.Get(ctx, "a")
		return err
	})
}

type header map[string]string

func (h header) Set(key, value string) { h[key] = value }

// These names only begin like those of writes.
func otherWords(ctx context.Context, locks *dibs.Client, c cache, header header) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		header.Set("a", "b")
		c.SetLocal("a")
		return c.Setup(ctx)
	})
}

// Readers do not write what the lock protects, and the fences of permits are not compared.
func shared(ctx context.Context, locks *dibs.Client, c cache) error {
	write := func(ctx context.Context) error { return c.Set(ctx, "a", 1) }
	if err := locks.RWMutex("a").Reader().Do(ctx, write); err != nil {
		return err
	}
	if err := locks.Semaphore("a", 2).Permits(1).Do(ctx, write); err != nil {
		return err
	}
	_, err := dibs.Call(ctx, locks.RWMutex("a").Reader(), func(ctx context.Context) (int, error) { return 1, c.Set(ctx, "a", 1) })
	return err
}

func withoutLock(ctx context.Context, c cache) error { return c.Set(ctx, "a", 1) }

// It sends the commands of the pipeline.
type pipeline struct{}

func (pipeline) Exec(ctx context.Context) error                        { return ctx.Err() }
func (pipeline) Get(ctx context.Context, key string)                   {}
func (*pipeline) Set(ctx context.Context, key string, value any) error { return ctx.Err() }

func pipelinedReads(ctx context.Context, locks *dibs.Client, p *pipeline) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		p.Get(ctx, "a")
		return p.Exec(ctx)
	})
}
