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

// Fence returns the fence of the lease that ctx carries: a context of Do, of Lease.Context, of
// WithLease, or of WithFence. If ctx carries several leases, it is that of the innermost one. It does
// no I/O.
//
// Fence returns no number that a resource must not compare. It returns ErrInvalid if
//
//   - ctx carries no lease, such as the outer context inside the function of Do,
//   - the lease is shared, as that of a reader or of a few permits: several holders are valid at once,
//   - the lease holds several names, each with a fence of its own: use FenceOf,
//   - the fence is unknown, as that of an attached lease or of WithFence with zero.
//
// If the lease has ended, it returns ErrLost or ErrReleased.
func Fence(ctx context.Context) (uint64, error) {
	switch in := ctx.Value(leasekey.Key{}).(type) {
	case *carriedLease:
		l := in.current().lease()
		if l.holdsSeveral() {
			return 0, invalid("fence of %q and others: each name has its own fence: use FenceOf", l.state.Name)
		}
		return l.comparableFence(l.state.Name)
	case *carriedFence:
		return in.value()
	}
	return 0, invalid("fence: the context carries no lease: pass on the context that Do gives to its function, or Lease.Context")
}

// FenceOf returns the fence for one name: that of the innermost lease or WithFence on the name that
// ctx carries. Its errors are those of Fence. It returns ErrInvalid if ctx carries no lease on the
// name.
func FenceOf(ctx context.Context, name string) (uint64, error) {
	lease, fence := findCarried(ctx, name)
	switch {
	case lease != nil:
		return lease.lease().comparableFence(name)
	case fence != nil:
		return fence.value()
	}
	return 0, errNotCarried("fence", name)
}

// value returns the fence, unless it is zero, which a caller of WithFence may not have noticed.
func (c *carriedFence) value() (uint64, error) {
	if c.fence == 0 {
		return 0, invalid("fence of %q: WithFence was called with zero", c.name)
	}
	return c.fence, nil
}

func (l *lease) holdsSeveral() bool {
	defer l.UnlockState()
	return l.LockState().More() > 0
}

// comparableFence returns the fence of a name, if the lease is held exclusively.
func (l *lease) comparableFence(name string) (uint64, error) {
	if err := l.first.Err(); err != nil {
		return 0, err
	}
	s := l.LockState()
	defer l.UnlockState()
	fence := s.FenceOf(name)
	switch {
	case fence == 0:
		return 0, invalid("fence of %q: unknown, because the lease is attached by a handle without its fence", name)
	case s.IsShared():
		return 0, invalid("fence of %q: the lease is shared, and fences of shared leases must not be compared", name)
	}
	return fence, nil
}
