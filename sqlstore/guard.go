package sqlstore

import (
	"context"
	"errors"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/guard"
)

// A Guarded is a name in a lease that guards a transaction.
type Guarded struct {
	guard.Lease
	Name  string
	Fence uint64 // zero if not known
	Inner bool   // the lease is the innermost
}

// Guard checks a store's leases in ctx, by calling check for each name.
func Guard(ctx context.Context, s driver.Store, check func(Guarded) (held bool, err error)) error {
	leases, err := guard.In(ctx, s)
	if err != nil {
		return err
	}
	for i, h := range leases {
		for j, name := range h.Names {
			held, err := check(Guarded{Lease: h, Name: name, Fence: h.Fences[j], Inner: i == 0})
			if cause := context.Cause(ctx); err != nil && errors.Is(cause, driver.ErrLost) {
				return errors.Join(cause, err) // the loss ended the check
			}
			if err != nil {
				return err
			}
			if !held {
				return guard.NotHeld(name)
			}
		}
	}
	return nil
}
