package dibs

import (
	"context"
	"errors"
	"fmt"
)

// A Doer runs work under a lock. A Mutex is one.
type Doer interface {
	Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error
}

// Call runs fn while holding the lock, as Do does, and returns fn's value. With
// an error from fn, or from giving the lock back, the value is still fn's.
func Call[T any](ctx context.Context, lock Doer, fn func(ctx context.Context) (T, error), options ...Option) (T, error) {
	var value T
	err := lock.Do(ctx, func(ctx context.Context) error {
		var err error
		value, err = fn(ctx)
		return err
	}, options...)
	return value, err
}

// run calls fn with a context that ends with ctx or the lease, and unlocks.
func (l *Lease) run(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	h := l.h
	h.c.mu.Lock()
	ctx = h.derive(ctx)
	h.c.mu.Unlock()
	defer func() {
		unlocked := l.Unlock()
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
	if in, ok := ctx.Value(carried{}).(*held); ok {
		return in.h.fence
	}
	return 0
}

// carried is the key under which a context carries what it holds.
type carried struct{}

// held is one lease that a context carries, and the further ones outside it.
type held struct {
	h     *hold
	outer *held
}

func carry(ctx context.Context, h *hold) context.Context {
	outer, _ := ctx.Value(carried{}).(*held)
	return context.WithValue(ctx, carried{}, &held{h: h, outer: outer})
}

// heldIn returns the live lease on a name that the context carries, or nil.
func heldIn(ctx context.Context, c *Client, name string) *hold {
	in, _ := ctx.Value(carried{}).(*held)
	for ; in != nil; in = in.outer {
		if in.h.c == c && in.h.name == name && in.h.first.Err() == nil {
			return in.h
		}
	}
	return nil
}

// enter gives a nested call its own handle of the lease.
func (h *hold) enter(reentrant bool) (*Lease, error) {
	if !reentrant {
		return nil, fmt.Errorf("%w: %q; Reentrant() lets it enter again", ErrReentrant, h.name)
	}
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	if h.err != nil {
		return nil, h.err
	}
	h.handles++
	return &Lease{h: h}, nil
}
