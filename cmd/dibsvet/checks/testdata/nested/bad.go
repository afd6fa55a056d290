// Package nested has locks inside others that All could acquire together.
package nested

import (
	"context"
	"errors"

	"github.com/dibslock/dibs"
)

func move(ctx context.Context) error { return ctx.Err() }

func constants(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		return locks.Mutex("b").Do(ctx, move) // want `a lock inside another one deadlocks with a program that acquires them in another order: acquire both names with All`
	})
}

func transfer(ctx context.Context, locks *dibs.Client, from, to string) error {
	return locks.Mutex("account:"+from).Do(ctx, func(ctx context.Context) error {
		lease, err := locks.Mutex("account:" + to).Lock(ctx) // want `a lock inside another one`
		if err != nil {
			return err
		}
		return errors.Join(move(lease.Context()), lease.Unlock())
	})
}

func inIfStatement(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		if err := locks.Mutex("b").Do(ctx, move); err != nil { // want `a lock inside another one`
			return err
		}
		return move(ctx)
	})
}

type bank struct{ locks *dibs.Client }

func (b *bank) transfer(ctx context.Context, from, to string) error {
	return b.locks.RWMutex(from).Do(ctx, func(ctx context.Context) error {
		return b.locks.RWMutex(to).Do(ctx, move) // want `a lock inside another one`
	})
}

func variables(ctx context.Context, locks *dibs.Client) error {
	a, b := locks.Mutex("a"), locks.Mutex("b")
	return a.Do(ctx, func(ctx context.Context) error {
		return b.Do(ctx, move) // want `a lock inside another one`
	})
}

func several(ctx context.Context, locks *dibs.Client, names ...string) error {
	return locks.All("a", "b").Do(ctx, func(ctx context.Context) error {
		return locks.Mutex("c").Do(ctx, move) // want `a lock inside another one`
	})
}

func call(ctx context.Context, locks *dibs.Client) (int, error) {
	return dibs.Call(ctx, locks.Mutex("a"), func(ctx context.Context) (int, error) {
		err := locks.Mutex("b").Do(ctx, move) // want `a lock inside another one`
		return 1, err
	})
}
