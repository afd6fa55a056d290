package work

import (
	"context"
	"time"
)

// A detachedContext is a context for work that outlives its call. It ends with the client, and
// carries values from the call's context, such as a trace parent.
type detachedContext struct {
	context.Context // ends with the client
	values          context.Context
}

// Detach returns a context that ends with life and carries another context's values.
func Detach(life, values context.Context) context.Context {
	if values == context.Background() { // no values, so no allocation
		return life
	}
	return detachedContext{life, values}
}

func (b detachedContext) Value(key any) any { return valueWithoutCancel(b.values, key) }

// AfterFunc saves a goroutine for each derived context.
func (b detachedContext) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(b.Context, f)
}

// Values is a context that carries another context's values and never ends. It is like
// context.WithoutCancel, but can be part of a larger allocation.
type Values struct{ Of context.Context }

// Deadline implements context.Context: there is none.
func (*Values) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Done implements context.Context: the context never ends.
func (*Values) Done() <-chan struct{} { return nil }

// Err implements context.Context: the context never ends.
func (*Values) Err() error { return nil }

// Value implements context.Context.
func (v *Values) Value(key any) any { return valueWithoutCancel(v.Of, key) }

// valueWithoutCancel returns the result of context.WithoutCancel(ctx).Value, usually without
// allocating. Package context uses a pointer to an int as the key for cancellation, which must not
// be found.
func valueWithoutCancel(ctx context.Context, key any) any {
	if _, ok := key.(*int); ok {
		return context.WithoutCancel(ctx).Value(key)
	}
	return ctx.Value(key)
}
