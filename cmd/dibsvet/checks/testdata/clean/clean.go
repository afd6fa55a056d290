// Package clean does not use dibs.
package clean

import "context"

type mutex struct{}

func (mutex) Lock(ctx context.Context) (*int, error) { return nil, ctx.Err() }

func lock(ctx context.Context) {
	_, _ = mutex{}.Lock(ctx)
}
