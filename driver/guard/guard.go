// Package guard finds the leases in a context. It is for store authors who check a lease in a
// user's transaction, and for libraries that pass leases from a context to another context.
package guard

import (
	"context"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/leasekey"
)

// A Lease describes a lease in a context.
type Lease struct {
	Store driver.Store // the store in which it is held
	Names []string
	Token string
	// Fences are the fences of Names, in the same order. A fence is zero if unknown: for an
	// attached lease, or after an unanswered request, which may have changed it.
	Fences []uint64
	// Reserve is how long the names would stay unavailable after a release now: the rest of
	// MinHold.
	Reserve time.Duration
	// Reentered means that a nested call and its caller share the lease. So neither may release it
	// in a transaction.
	Reentered bool
}

// A carrier is the root package's value in a context. No other module can implement it.
type carrier interface{ HeldLeases(leasekey.Key) []Lease }

// Leases returns the leases in ctx, innermost first.
func Leases(ctx context.Context) []Lease {
	c, ok := ctx.Value(leasekey.Key{}).(carrier)
	if !ok {
		return nil
	}
	return c.HeldLeases(leasekey.Key{})
}

// In returns the leases in ctx held in the store s, innermost first, for a guard to check. It also
// finds leases from clients that use a decorator of s. In returns driver.ErrInvalid if there is no
// such lease.
func In(ctx context.Context, s driver.Store) ([]Lease, error) {
	var held []Lease
	for _, l := range Leases(ctx) {
		if driver.Innermost(l.Store) == s {
			held = append(held, l)
		}
	}
	if len(held) == 0 {
		return nil, fmt.Errorf("%w: guard: the context carries no lease of this store: use that of Do or of Lease.Context", driver.ErrInvalid)
	}
	return held, nil
}

// NotHeld returns a guard's error for a name whose lease ended.
func NotHeld(name string) error {
	return fmt.Errorf("%w: guard %q: it is not held any more, so the transaction must not be committed", driver.ErrLost, name)
}
