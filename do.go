package dibs

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// A Doer runs work under a lock: a Mutex, a Set, a Semaphore, an RWMutex for writing
// and what its Reading returns.
type Doer interface {
	Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error
}

// Call runs fn while holding the lock, as Do does, and returns fn's value. With
// an error from fn, or from giving the lock back, the value is still fn's.
func Call[T any](ctx context.Context, lock Doer, fn func(ctx context.Context) (T, error), options ...Option) (T, error) {
	var value T
	if fn == nil {
		return value, errNoFunc
	}
	err := lock.Do(ctx, func(ctx context.Context) error {
		var err error
		value, err = fn(ctx)
		return err
	}, options...)
	return value, err
}

// Wrap returns a function that runs fn under the lock of its argument, as Do does:
//
//	pay := dibs.Wrap(func(o Order) dibs.Doer { return locks.Mutex("order:" + o.ID) }, svc.Pay)
//	err := pay(ctx, order)
//
// A nil fn, or a nil function or result of lock, makes each call return ErrInvalid.
func Wrap[A any](lock func(A) Doer, fn func(ctx context.Context, arg A) error, options ...Option) func(ctx context.Context, arg A) error {
	return func(ctx context.Context, arg A) error {
		doer, err := doerFor(lock, arg)
		if err != nil {
			return err
		}
		if fn == nil {
			return errNoFunc
		}
		return doer.Do(ctx, func(ctx context.Context) error { return fn(ctx, arg) }, options...)
	}
}

// WrapCall is Wrap for a function with a result.
func WrapCall[A, R any](lock func(A) Doer, fn func(ctx context.Context, arg A) (R, error), options ...Option) func(ctx context.Context, arg A) (R, error) {
	return func(ctx context.Context, arg A) (result R, err error) {
		doer, err := doerFor(lock, arg)
		if err != nil {
			return result, err
		}
		if fn == nil {
			return result, errNoFunc
		}
		return Call(ctx, doer, func(ctx context.Context) (R, error) { return fn(ctx, arg) }, options...)
	}
}

func doerFor[A any](lock func(A) Doer, arg A) (Doer, error) {
	if lock == nil {
		return nil, invalid("nil function for the lock")
	}
	doer := lock(arg)
	if doer == nil {
		return nil, invalid("nil lock for a %T", arg)
	}
	return doer, nil
}

// do runs fn while holding what lock takes.
func do(ctx context.Context, lock func(context.Context, ...Option) (*Lease, error), fn func(ctx context.Context) error, options []Option) error {
	if fn == nil {
		return errNoFunc
	}
	lease, err := lock(ctx, options...)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

var errNoFunc = invalid("nil function")

// run calls fn with a context that ends with ctx or the lease, and unlocks. The context
// ends with fn, too: the lease may last for longer, and would keep it.
func (l *Lease) run(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	h := l.h
	h.c.mu.Lock()
	ctx, b := h.derive(ctx)
	h.c.mu.Unlock()
	defer func() {
		unlocked := l.Unlock()
		h.removeContext(b)
		switch {
		case err == nil:
			err = unlocked
		case unlocked != nil:
			err = errors.Join(err, unlocked)
		}
	}()
	return fn(ctx)
}

// Fence returns the fence of the lease that the context of Do, or of a lease,
// carries: of the innermost if there are several. It is zero without one.
func Fence(ctx context.Context) uint64 {
	if in, ok := ctx.Value(carried{}).(*carriedLease); ok {
		return in.h.first.Fence()
	}
	return 0
}

// FenceOf returns the fence for one name, of the innermost lease on it that the
// context carries. It is zero without one.
func FenceOf(ctx context.Context, name string) uint64 {
	in, _ := ctx.Value(carried{}).(*carriedLease)
	for ; in != nil; in = in.outer {
		if fence := in.h.fenceOf(name); fence != 0 {
			return fence
		}
	}
	return 0
}

// carried is the key under which a context carries what it holds.
type carried struct{}

// held is one lease that a context carries, and the further ones outside it.
type carriedLease struct {
	h     *leaseState
	outer *carriedLease
}

func carry(ctx context.Context, h *leaseState) context.Context {
	outer, _ := ctx.Value(carried{}).(*carriedLease)
	return context.WithValue(ctx, carried{}, &carriedLease{h: h, outer: outer})
}

// heldIn returns the live lease that the context carries on something wanted, or
// nil.
func leaseIn(ctx context.Context, c *Client, w lockSpec) *leaseState {
	in, _ := ctx.Value(carried{}).(*carriedLease)
	for ; in != nil; in = in.outer {
		if in.h.c == c && in.h.countHeld(w) > 0 && in.h.first.Err() == nil {
			return in.h
		}
	}
	return nil
}

// covers returns how many of the wanted names the lease holds.
func (h *leaseState) countHeld(w lockSpec) int {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	n := 0
	if h.holdsName(w.name) {
		n++
	}
	for _, name := range w.with {
		if h.holdsName(name) {
			n++
		}
	}
	return n
}

// has reports whether a name is one of the lease's. The caller holds c.mu.
func (h *leaseState) holdsName(name string) bool {
	return name == h.name || slices.ContainsFunc(h.moreNames, func(p fencedName) bool { return p.name == name })
}

// enter gives a nested call its own handle of the lease, if the lease holds all that
// the call wants.
func (h *leaseState) reenter(w lockSpec, reentrant bool) (*Lease, error) {
	whole := h.countHeld(w) == 1+len(w.with)
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	enough := whole && (h.weight == h.limit || w.weight < w.limit && w.weight <= h.weight)
	switch {
	case h.err != nil:
		return nil, h.err
	case !enough:
		return nil, fmt.Errorf("%w: %q, but less of it than is wanted now: the call would wait for itself", ErrReentrant, h.name)
	case !reentrant:
		return nil, fmt.Errorf("%w: %q; Reentrant() lets it enter again", ErrReentrant, h.name)
	}
	h.handles++
	return &Lease{h: h}, nil
}
