package dibs

import (
	"context"

	"github.com/dibslock/dibs/driver/guard"
	"github.com/dibslock/dibs/internal/leasekey"
)

// WithFence returns a context from which Fence, and FenceOf for this name, return the given fence.
// It is for code that passes a fence on, such as a server that received the fence with a request.
// If ctx carries a lease, Fence no longer finds that lease in the new context. FenceOf still finds
// it for other names. An inner lease or WithFence hides this fence in the same way.
//
// The new context carries a fence, but no lease. Functions that need a lease, such as Guard and
// ReleaseIn of the database stores, return ErrInvalid in the new context. They do not fall back to
// a lease that ctx carries: that lease may be for another lock.
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

// Fence returns the fence (fencing token) of the innermost lease that ctx carries. The context of
// Do's function carries the lease, and so do those of Lease.Context and WithLease. A context from
// WithFence carries only a fence. Fence does no I/O.
//
// Fence only returns a number that a resource can compare with the number in an earlier write.
// Fence returns ErrInvalid if
//
//   - ctx carries no lease, such as the outer context inside Do's function,
//   - the lease is shared, such as a reader's lease or some of a semaphore's permits: several
//     holders are valid at once,
//   - the lease holds several names, each with its own fence: use FenceOf,
//   - the fence is unknown: Attach received a Handle without a fence, or WithFence was called with
//     zero.
//
// If the lease ended, Fence returns ErrLost or ErrReleased.
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

// FenceOf returns the fence for a name, from the innermost lease or WithFence on this name in ctx.
// If ctx carries neither, FenceOf returns ErrInvalid. Other errors are those of Fence.
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

// value returns the fence, or an error if it is zero, which WithFence's caller may not have
// noticed.
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

// comparableFence returns a name's fence if the lease is held exclusively.
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
