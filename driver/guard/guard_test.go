package guard_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/guard"
	"github.com/dibslock/dibs/memstore"
)

// A forged context answers every key with leases that nobody holds.
type forged struct {
	context.Context
	leases []guard.Lease
}

func (f forged) Value(any) any { return f }

func (f forged) HeldLeases() []guard.Lease { return f.leases }

// Only the root package makes a context that carries leases.
func TestForgedContext(t *testing.T) {
	s := memstore.New()
	ctx := forged{t.Context(), []guard.Lease{{Store: s, Names: []string{"n"}, Fences: []uint64{0}, Token: "t"}}}
	if held := guard.Leases(ctx); len(held) > 0 {
		t.Errorf("leases %+v, want none", held)
	}
	if err := s.Guard(ctx); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a guard: %v, want ErrInvalid", err)
	}
}
