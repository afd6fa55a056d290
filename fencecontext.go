package dibs

import (
	"context"

	"github.com/dibslock/dibs/driver/guard"
	"github.com/dibslock/dibs/internal/leasekey"
)

// WithFence returns a context from which Fence, and FenceOf for this name, return the fence. It is
// for code that passes a fence on: a server that has received it with a request, or a package such as
// cohort. Until a nearer lease or WithFence, it hides what the outer context carries: Fence returns
// this fence, and FenceOf returns it for this name. For other names FenceOf finds those of the outer
// context.
//
// The context carries no lease of its own. Guards of databases and ReleaseIn find none in it and
// return ErrInvalid, although there may be outer ones: the caller means the innermost lock.
func WithFence(ctx context.Context, name string, fence uint64) context.Context {
	return &carriedFence{ctx, name, fence}
}

// A carriedFence is a context that carries a fence without a lease.
type carriedFence struct {
	context.Context
	name  string
	fence uint64
}

// Value implements context.Context.
func (c *carriedFence) Value(key any) any {
	if key == (leasekey.Key{}) {
		return c
	}
	return c.Context.Value(key)
}

// HeldLeases returns the leases to package guard.
func (c *carriedFence) HeldLeases(leasekey.Key) []guard.Lease { return nil }

// Fence returns the fence of the lease that ctx carries: a context of Do, of Lease.Context, or of
// WithFence. If ctx carries several leases, it is that of the innermost one. For a multi-lock use
// FenceOf: each name has its own fence. It is zero without a lease, and for an attached one.
func Fence(ctx context.Context) uint64 {
	switch in := ctx.Value(leasekey.Key{}).(type) {
	case *carriedLease:
		return in.current().Fence()
	case *carriedFence:
		return in.fence
	}
	return 0
}

// FenceOf returns the fence for one name: that of the innermost lease or WithFence on the name that
// ctx carries. Without one it is zero.
func FenceOf(ctx context.Context, name string) uint64 {
	for {
		fence := uint64(0)
		switch in := ctx.Value(leasekey.Key{}).(type) {
		case *carriedLease:
			fence, ctx = in.current().FenceOf(name), in.Context
		case *carriedFence:
			if in.name == name {
				return in.fence
			}
			ctx = in.Context
		default:
			return 0
		}
		if fence != 0 {
			return fence
		}
	}
}
