// Package carried reads what a context carries, for tests.
package carried

import (
	"context"

	"github.com/dibslock/dibs"
)

// Fence returns the fence that ctx carries, or zero.
func Fence(ctx context.Context) uint64 {
	fence, err := dibs.Fence(ctx)
	if err != nil {
		return 0
	}
	return fence
}

// FenceOf returns the fence for a name that ctx carries, or zero.
func FenceOf(ctx context.Context, name string) uint64 {
	fence, err := dibs.FenceOf(ctx, name)
	if err != nil {
		return 0
	}
	return fence
}

// Yield yields the lease on a name that ctx carries.
func Yield(ctx context.Context, name string, options ...dibs.Option) error {
	lease, err := dibs.LeaseOf(ctx, name)
	if err != nil {
		return err
	}
	return lease.Yield(ctx, options...)
}
