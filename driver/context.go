package driver

import "context"

// A Held is a lease that a context carries.
type Held struct {
	Store Store // in which it is held
	Names []string
	Token string
	// Shared means that further calls have the token, one after another, as in a cohort. So the
	// store cannot tie the lease of this call to a transaction.
	Shared bool
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
