package nofence

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dibslock/dibs"
)

// The forms in which programs write.

type repository struct{ c cache }

func (r *repository) SaveAll(ctx context.Context, names ...string) error { return ctx.Err() }
func (r *repository) InsertRow(ctx context.Context) (int, error)         { return 0, ctx.Err() }
func (r *repository) Find(ctx context.Context) error                     { return ctx.Err() }

func method(ctx context.Context, locks *dibs.Client, r *repository) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		return r.SaveAll(ctx, "a") // want `this write is not protected`
	})
}

func afterRead(ctx context.Context, locks *dibs.Client, r *repository) error {
	return locks.RWMutex("a").Writer().Do(ctx, func(ctx context.Context) error {
		if err := r.Find(ctx); err != nil {
			return err
		}
		_, err := r.InsertRow(ctx) // want `this write is not protected`
		return err
	})
}

func inLoop(ctx context.Context, locks *dibs.Client, c cache, keys []string) error {
	return locks.All([]string{"a", "b"}).Do(ctx, func(ctx context.Context) error {
		for _, key := range keys {
			if err := c.Set(ctx, key, 1); err != nil { // want `this write is not protected`
				return err
			}
		}
		return nil
	})
}

func inClosure(ctx context.Context, locks *dibs.Client, c cache) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		write := func() error { return c.Set(ctx, "a", 1) } // want `this write is not protected`
		return write()
	})
}

func inTransaction(ctx context.Context, locks *dibs.Client, db *sql.DB) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "UPDATE a"); err != nil { // want `this write is not protected`
			return err
		}
		return tx.Commit()
	})
}

func wrapped(locks *dibs.Client, r *repository) func(context.Context, string) error {
	return dibs.Wrap(func(id string) dibs.Doer { return locks.Mutex(id) }, func(ctx context.Context, id string) error {
		return r.SaveAll(ctx, id) // want `this write is not protected`
	})
}

func variable(ctx context.Context, locks *dibs.Client, c cache) error {
	work := func(ctx context.Context) error {
		return c.Set(ctx, "a", 1) // want `this write is not protected`
	}
	return locks.Mutex("a").Do(ctx, work)
}

func generic[R interface {
	SaveAll(context.Context, ...string) error
}](ctx context.Context, locks *dibs.Client, r R) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		return r.SaveAll(ctx) // want `this write is not protected`
	})
}

// The write is protected, or none.

func holds(ctx context.Context, locks *dibs.Client, c cache) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		return errors.Join(locks.Holds(ctx, "a"), c.Set(ctx, "a", 1))
	})
}

func fenceBefore(ctx context.Context, locks *dibs.Client, r *repository) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		fence, err := dibs.Fence(ctx)
		if err != nil {
			return err
		}
		for range 3 {
			if err := r.c.Set(ctx, "a", fence); err != nil {
				return err
			}
		}
		return nil
	})
}

func onlyFind(ctx context.Context, locks *dibs.Client, r *repository) error {
	return locks.Mutex("a").Do(ctx, r.Find)
}

func afterTheLock(ctx context.Context, locks *dibs.Client, r *repository) error {
	if err := locks.Mutex("a").Do(ctx, r.Find); err != nil {
		return err
	}
	return r.SaveAll(ctx)
}
