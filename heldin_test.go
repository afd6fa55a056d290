package dibs_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver/guard"
	"github.com/dibslock/dibs/memstore"
)

// A context gives a store the data to tie a lease to a transaction.
func TestHeldIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := dibs.New(memstore.New())
		defer locks.Close()
		err := locks.Mutex("n", dibs.MinHold(time.Minute)).Do(t.Context(), func(ctx context.Context) error {
			time.Sleep(20 * time.Second)
			h := guard.Leases(ctx)[0]
			if h.Fences[0] != fenceIn(t, ctx) || h.Reserve != 40*time.Second || h.Reentered {
				t.Errorf("%+v, want the fence, 40 s of MinHold, and no nested call", h)
			}
			return locks.Mutex("n").Do(ctx, func(inner context.Context) error {
				for _, ctx := range []context.Context{ctx, inner} {
					if h := guard.Leases(ctx)[0]; !h.Reentered {
						t.Errorf("%+v, want that a nested call uses it", h)
					}
				}
				return nil
			}, dibs.Reentrant())
		})
		if err != nil {
			t.Error(err)
		}
	})
}
