// Package guard finds the leases that a context carries. It is for authors of stores that verify a
// lease in a transaction of the user, and for libraries that pass a lease from one context to another.
package guard

import (
	"context"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/leasekey"
)

// A Lease is a lease that a context carries.
type Lease struct {
	Store driver.Store // in which it is held
	Names []string
	Token string
	// Fences are those of the names. A fence is zero if it is not known: that of an attached
	// lease, or after a request without an answer, which may have changed it.
	Fences []uint64
	// Reserve is how long the names stay unavailable after a release at this moment: the rest of
	// MinHold.
	Reserve time.Duration
	// Reentered means that a nested call and its caller both use the lease. So neither may
	// release it in a transaction.
	Reentered bool
}

// A carrier is what a context of the root package has under the key. No other module can implement it.
type carrier interface{ HeldLeases(leasekey.Key) []Lease }

// Leases returns the leases that ctx carries, the innermost first.
func Leases(ctx context.Context) []Lease {
	c, ok := ctx.Value(leasekey.Key{}).(carrier)
	if !ok {
		return nil
	}
	return c.HeldLeases(leasekey.Key{})
}

// Pass returns a child of ctx that carries the leases which another context carries, and not those of
// ctx. Their end does not end it.
func Pass(ctx, from context.Context) context.Context {
	return context.WithValue(ctx, leasekey.Key{}, from.Value(leasekey.Key{}))
}

// In returns the leases in a store that ctx carries, the innermost first: those that a guard of this
// store checks. A client may have a decorator of the store. In returns driver.ErrInvalid if there is
// no such lease.
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

// NotHeld returns the error of a guard whose lease on a name has ended.
func NotHeld(name string) error {
	return fmt.Errorf("%w: guard %q: it is not held any more, so the transaction must not be committed", driver.ErrLost, name)
}
