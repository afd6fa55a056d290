package dibs

import (
	"context"
	"time"
)

// A detachedContext is the context of work that outlives its call. It ends with the
// client, and has the values of the call's context, such as the parent of a trace.
type detachedContext struct {
	context.Context // ends with the client
	values          context.Context
}

// detach returns a context that ends with life and has the values of another context.
func detach(life, values context.Context) context.Context {
	if values == context.Background() { // it has none: no need for an allocation
		return life
	}
	return detachedContext{life, values}
}

// values returns the context whose values the requests of a lease have: that of the call,
// with what the AcquireStart hooks have added.
func (h *lease) values() context.Context {
	if h.hooks != nil {
		return h.hooks.context()
	}
	return h.parent
}

func (b detachedContext) Value(key any) any { return valueWithoutCancel(b.values, key) }

// AfterFunc saves a goroutine for each context that is derived from this one.
func (b detachedContext) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(b.Context, f)
}

// A valuesContext has the values of a context, and never ends. It is as the result of
// context.WithoutCancel, but can be part of another allocation.
type valuesContext struct{ of context.Context }

func (*valuesContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (*valuesContext) Done() <-chan struct{}                   { return nil }
func (*valuesContext) Err() error                              { return nil }
func (c *valuesContext) Value(key any) any                     { return valueWithoutCancel(c.of, key) }

// valueWithoutCancel returns what context.WithoutCancel(ctx).Value returns, in most cases
// without its allocation. Package context uses a pointer to an int as the key of what ends a
// context, which must not be found.
func valueWithoutCancel(ctx context.Context, key any) any {
	if _, ok := key.(*int); ok {
		return context.WithoutCancel(ctx).Value(key)
	}
	return ctx.Value(key)
}
