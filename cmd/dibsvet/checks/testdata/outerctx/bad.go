// Package outerctx has contexts from outside in functions under a lock.
package outerctx

import (
	"context"

	"github.com/dibslock/dibs"
)

func save(ctx context.Context, args ...any) error        { return ctx.Err() }
func load(ctx context.Context, name string) (int, error) { return len(name), ctx.Err() }

type service struct {
	locks *dibs.Client
	ctx   context.Context
}

func do(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		if err := save(ctx, 1); err != nil { // want `ctx is from outside: it does not end when the lease is lost; use inner, the context of this function`
			return err
		}
		return save(inner, 2)
	})
}

func variable(ctx context.Context, locks *dibs.Client) error {
	work := func(inner context.Context) error {
		return save(ctx) // want `ctx is from outside`
	}
	return locks.Mutex("a").Do(ctx, work)
}

func nestedLock(ctx context.Context, locks *dibs.Client, names []string) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		for _, name := range names {
			err := locks.Mutex(name).Do(ctx, func(ctx context.Context) error { // want `ctx is from outside: it does not carry the lease, so a lock on the same name waits for itself; use inner`
				return save(ctx)
			})
			if err != nil {
				return err
			}
		}
		lease, err := locks.Mutex("b").Lock(ctx) // want `ctx is from outside: it does not carry the lease`
		if err != nil {
			return err
		}
		return lease.Unlock()
	})
}

func innermost(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(a context.Context) error {
		return locks.RWMutex("b").Reader().Do(a, func(b context.Context) error {
			return save(a) // want `a is from outside`
		})
	})
}

func blank(ctx context.Context, locks *dibs.Client) error {
	return locks.Semaphore("a", 2).Permits(1).Do(ctx, func(_ context.Context) error {
		if err := save(ctx, 1); err != nil { // want `ctx is from outside.*; give the context parameter of this function a name, and use it`
			return err
		}
		return save(ctx, 2) // want `ctx is from outside`
	})
}

func unnamed(ctx context.Context, locks *dibs.Client) error {
	return locks.Once("a", 0).Do(ctx, func(context.Context) error {
		return save(ctx) // want `ctx is from outside`
	})
}

func call(ctx context.Context, lock dibs.Doer) (int, error) {
	return dibs.Call(ctx, lock, func(inner context.Context) (int, error) {
		return load(ctx, "a") // want `ctx is from outside`
	})
}

func explicit(ctx context.Context, lock dibs.Doer) (int, error) {
	return dibs.Call[int](ctx, lock, func(inner context.Context) (int, error) {
		return load(ctx, "a") // want `ctx is from outside`
	})
}

func generic[L dibs.Doer](ctx context.Context, lock L) error {
	return lock.Do(ctx, func(inner context.Context) error {
		return save(ctx) // want `ctx is from outside`
	})
}

func wrap(ctx context.Context, locks *dibs.Client) func(context.Context, string) error {
	lock := func(id string) dibs.Doer { return locks.Mutex(id) }
	return dibs.Wrap(lock, func(inner context.Context, id string) error {
		return save(ctx, id) // want `ctx is from outside`
	})
}

func wrapCall(ctx context.Context, locks *dibs.Client) func(context.Context, string) (int, error) {
	lock := func(id string) dibs.Doer { return locks.RWMutex(id).Reader() }
	return dibs.WrapCall(lock, func(inner context.Context, id string) (int, error) {
		return load(ctx, id) // want `ctx is from outside`
	})
}

func (s *service) run() error {
	return s.locks.Election("a").Run(s.ctx, func(term context.Context) error {
		for term.Err() == nil {
			if err := save(s.ctx); err != nil { // want `s.ctx is from outside`
				return err
			}
		}
		return nil
	})
}

// A request is like one of net/http.
type request struct{ ctx context.Context }

func (r *request) Context() context.Context { return r.ctx }

func (s *service) handle(r *request) error {
	return s.locks.All([]string{"a", "b"}).Do(r.Context(), func(ctx context.Context) error {
		return save(r.Context()) // want `r.Context\(\) is from outside`
	})
}

func derived(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		work, cancel := context.WithCancel(ctx) // want `ctx is from outside`
		defer cancel()
		return save(work)
	})
}

func literalInside(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		step := func() error {
			return save(ctx) // want `ctx is from outside`
		}
		return step()
	})
}

func notTheEnd(ctx context.Context, locks *dibs.Client, ready bool) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		if ready {
			return save(ctx) // want `ctx is from outside`
		}
		return nil
	})
}

func methodValue(ctx context.Context, locks *dibs.Client) error {
	under := locks.Mutex("a").Do
	return under(ctx, func(inner context.Context) error {
		return save(ctx) // want `ctx is from outside`
	})
}

func ownFence(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		fence, err := dibs.Fence(ctx) // want `ctx is from outside`
		if err != nil {
			return err
		}
		return save(inner, fence)
	})
}

// A doer is a dibs.Doer of this package.
type doer struct{ dibs.Doer }

func embedded(ctx context.Context, d doer) error {
	return d.Do(ctx, func(inner context.Context) error {
		return save(ctx) // want `ctx is from outside`
	})
}

func shadowed(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		{
			inner := "not a context"
			return save(ctx, inner) // want `ctx is from outside`
		}
	})
}

// A webContext is a context, like that of a web framework.
type webContext struct{ context.Context }

func framework(c *webContext, locks *dibs.Client) error {
	return locks.Mutex("a").Do(c, func(inner context.Context) error {
		return save(c) // want `c is from outside`
	})
}

var (
	global  = context.Background()
	clients = dibs.New(nil)
)

func packageVariable() error {
	return clients.Mutex("a").Do(global, func(inner context.Context) error {
		return save(global) // want `global is from outside`
	})
}

func twoLevels(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(a context.Context) error {
		return locks.Semaphore("b", 2).Permits(1).Do(a, func(b context.Context) error {
			return save(ctx) // want `ctx is from outside.*use b`
		})
	})
}

// There is no fix: with a name, the parameter would also replace ctx in the go statement.
func blankWithGoStatement(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(_ context.Context) error {
		go save(ctx)
		return save(ctx) // want `ctx is from outside`
	})
}
