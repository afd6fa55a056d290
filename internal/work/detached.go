package work

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

// Detach returns a context that ends with life and has the values of another context.
func Detach(life, values context.Context) context.Context {
	if values == context.Background() { // it has none: no need for an allocation
		return life
	}
	return detachedContext{life, values}
}

func (b detachedContext) Value(key any) any { return valueWithoutCancel(b.values, key) }

// AfterFunc saves a goroutine for each context that is derived from this one.
func (b detachedContext) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(b.Context, f)
}

// Values is a context that has the values of another one, and never ends. It is as the result
// of context.WithoutCancel, but can be part of another allocation.
type Values struct{ Of context.Context }

// Deadline implements context.Context: there is none.
func (*Values) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Done implements context.Context: the context never ends.
func (*Values) Done() <-chan struct{} { return nil }

// Err implements context.Context: the context never ends.
func (*Values) Err() error { return nil }

// Value implements context.Context.
func (v *Values) Value(key any) any { return valueWithoutCancel(v.Of, key) }

// valueWithoutCancel returns what context.WithoutCancel(ctx).Value returns, in most cases
// without its allocation. Package context uses a pointer to an int as the key of what ends a
// context, which must not be found.
func valueWithoutCancel(ctx context.Context, key any) any {
	if _, ok := key.(*int); ok {
		return context.WithoutCancel(ctx).Value(key)
	}
	return ctx.Value(key)
}
