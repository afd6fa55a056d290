package dibs_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A nested call leaves nothing in memory, however long the outer lease lives.
func TestNestedCallsLeaveNothing(t *testing.T) {
	const calls = 20_000
	nothing := func(context.Context) error { return nil }
	c := open(t, memstore.New())
	for what, nested := range map[string]struct{ outer, inner dibs.Doer }{
		"Mutex":     {c.Mutex("n"), c.Mutex("n", dibs.Reentrant())},
		"Set":       {c.All([]string{"n", "m"}), c.Mutex("m", dibs.Reentrant())},
		"reader":    {c.RWMutex("n").Reader(), c.RWMutex("n", dibs.Reentrant()).Reader()},
		"Semaphore": {c.Semaphore("n", 2).Permits(1), c.Semaphore("n", 2, dibs.Reentrant()).Permits(1)},
	} {
		t.Run(what, func(t *testing.T) {
			err := nested.outer.Do(t.Context(), func(ctx context.Context) error {
				before := heap()
				for range calls {
					if err := nested.inner.Do(ctx, nothing); err != nil {
						return err
					}
				}
				if grown := heap() - before; grown > 50*calls {
					t.Errorf("%d bytes more after %d calls", grown, calls)
				}
				return nil
			})
			wantErr(t, err)
		})
	}
}

// A nested call's context ends with its work; the other contexts end with the lease.
func TestContextsOfNestedCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		err := c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			var group sync.WaitGroup
			for i := range 50 {
				group.Go(func() {
					var inner context.Context
					_ = c.Mutex("n").Do(ctx, func(ctx context.Context) error {
						inner = ctx
						if i%3 == 0 {
							return nil
						}
						<-ctx.Done()
						wantLost(t, context.Cause(ctx), dibs.ReasonRevoked)
						return nil
					}, dibs.Reentrant())
					if inner.Err() == nil {
						t.Error("the context of an ended call has not ended")
					}
				})
			}
			synctest.Wait()
			if err := ctx.Err(); err != nil {
				t.Errorf("the outer context ended with an inner one: %v", err)
			}
			if revoked, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Fence: fenceIn(t, ctx)}); !revoked || err != nil {
				t.Fatal(revoked, err)
			}
			group.Wait()
			wantLost(t, context.Cause(ctx), dibs.ReasonRevoked)
			return nil
		})
		wantLost(t, err, dibs.ReasonRevoked)
	})
}
