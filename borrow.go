package dibs

import "context"

// borrowed is the context of work that outlives its call: it ends with the client, and
// has the values of the call's context, such as the parent of a trace.
type borrowed struct {
	context.Context // ends with the client
	values          context.Context
}

// borrow returns a context that ends with life and has the values of another.
func borrow(life, values context.Context) context.Context {
	if values == context.Background() { // it has none: no need for two allocations
		return life
	}
	return borrowed{life, context.WithoutCancel(values)}
}

func (b borrowed) Value(key any) any { return b.values.Value(key) }

// AfterFunc spares contexts that are derived from this one a goroutine.
func (b borrowed) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(b.Context, f) }
