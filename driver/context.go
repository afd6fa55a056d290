package driver

import (
	"context"
	"fmt"
	"time"
)

// A Held is a lease that a context carries.
type Held struct {
	Store Store // in which it is held
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

// A Carrier has the leases of a context, the innermost first.
type Carrier interface{ HeldLeases() []Held }

// CarrierKey is the key of the Carrier in a context. The root package sets it; a store that can
// check a lease in a transaction of the user reads it with HeldIn.
type CarrierKey struct{}

// HeldIn returns the leases that ctx carries, the innermost first.
func HeldIn(ctx context.Context) []Held {
	c, ok := ctx.Value(CarrierKey{}).(Carrier)
	if !ok {
		return nil
	}
	return c.HeldLeases()
}

// GuardsIn returns the leases in a store that ctx carries, the innermost first: those that a
// guard of this store checks. It returns ErrInvalid if there is none.
func GuardsIn(ctx context.Context, s Store) ([]Held, error) {
	var held []Held
	for _, h := range HeldIn(ctx) {
		if h.Store == s {
			held = append(held, h)
		}
	}
	if len(held) == 0 {
		return nil, fmt.Errorf("%w: guard: the context carries no lease of this store: use that of Do or of Lease.Context", ErrInvalid)
	}
	return held, nil
}

// NotHeld returns the error of a guard whose lease on a name has ended.
func NotHeld(name string) error {
	return fmt.Errorf("%w: guard %q: it is not held any more, so the transaction must not be committed", ErrLost, name)
}
