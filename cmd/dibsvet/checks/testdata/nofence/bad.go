// Package nofence writes under a lock without a fence.
package nofence

import (
	"context"
	"database/sql"
	"time"

	"github.com/dibslock/dibs"
)

type cache struct{}

func (cache) Set(ctx context.Context, key string, value any) error   { return ctx.Err() }
func (cache) SetNX(ctx context.Context, key string, value any) error { return ctx.Err() }
func (cache) Get(ctx context.Context, key string) (any, error)       { return nil, ctx.Err() }
func (cache) Setup(ctx context.Context) error                        { return ctx.Err() }
func (cache) DeleteMany(ctx context.Context, keys ...string) error   { return ctx.Err() }
func (cache) SetLocal(key string)                                    {}

func exec(ctx context.Context, locks *dibs.Client, db *sql.DB) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, "UPDATE accounts SET balance = 0") // want `this write is not protected from a late holder: pass dibs.Fence\(ctx\) to a resource that rejects smaller fences, or use a Guard`
		return err
	})
}

func execWithoutContext(ctx context.Context, locks *dibs.Client, tx *sql.Tx) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		_, err := tx.Exec("UPDATE accounts SET balance = 0") // want `this write is not protected`
		return err
	})
}

func set(ctx context.Context, locks *dibs.Client, c cache) (int, error) {
	return dibs.Call(ctx, locks.Mutex("a"), func(ctx context.Context) (int, error) {
		return 1, c.SetNX(ctx, "a", 1) // want `this write is not protected`
	})
}

func leader(ctx context.Context, locks *dibs.Client, c cache) error {
	return locks.Election("a").Run(ctx, func(ctx context.Context) error {
		return c.DeleteMany(ctx, "a") // want `this write is not protected`
	})
}

func job(ctx context.Context, locks *dibs.Client, c cache) error {
	return locks.Once("a", time.Hour).Do(ctx, func(ctx context.Context) error {
		return c.Set(ctx, "a", 1) // want `this write is not protected`
	})
}

func deep(ctx context.Context, locks *dibs.Client, c cache) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error { return store(ctx, c) })
}

func store(ctx context.Context, c cache) error { return c.Set(ctx, "a", 1) } // want `this write is not protected`

func declared(ctx context.Context, locks *dibs.Client) error { return locks.Mutex("a").Do(ctx, save) }

func save(ctx context.Context) error {
	var c cache
	return c.Set(ctx, "b", 1) // want `this write is not protected`
}

func pipelinedWrites(ctx context.Context, locks *dibs.Client, p *pipeline) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		p.Set(ctx, "a", 1) // want `this write is not protected`
		return p.Exec(ctx)
	})
}
