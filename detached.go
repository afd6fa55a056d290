package dibs

import "context"

// A detachedContext is the context of work that outlives its call. It ends with the
// client, and has the values of the call's context, such as the parent of a trace.
type detachedContext struct {
	context.Context // ends with the client
	values          context.Context
}

// detach returns a context that ends with life and has the values of another context.
func detach(life, values context.Context) context.Context {
	if values == context.Background() { // it has none: no need for two allocations
		return life
	}
	return detachedContext{life, context.WithoutCancel(values)}
}

// values returns the context whose values the requests of a lease have: that of the call,
// with what the AcquireStart hooks have added.
func (h *lease) values() context.Context {
	if h.hooks != nil {
		return h.hooks.ctx
	}
	return h.parent
}

func (b detachedContext) Value(key any) any { return b.values.Value(key) }

// AfterFunc saves a goroutine for each context that is derived from this one.
func (b detachedContext) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(b.Context, f)
}
