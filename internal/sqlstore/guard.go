package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/dibslock/dibs/driver"
)

// Guard checks the leases of a store that ctx carries, by check for each name.
func Guard(ctx context.Context, s driver.Store, check func(name, token string) (held bool, err error)) error {
	found := false
	for _, h := range driver.HeldIn(ctx) {
		if h.Store != s {
			continue
		}
		if h.Shared {
			return fmt.Errorf("%w: guard %q: the calls of a cohort share its lease, and a guard would hold for the next call, too: lock the name without Cohort", driver.ErrInvalid, h.Names[0])
		}
		found = true
		for _, name := range h.Names {
			held, err := check(name, h.Token)
			if cause := context.Cause(ctx); err != nil && errors.Is(cause, driver.ErrLost) {
				return errors.Join(cause, err) // the loss has ended the check
			}
			if err != nil {
				return err
			}
			if !held {
				return fmt.Errorf("%w: guard %q: it is not held any more, so the transaction must not be committed", driver.ErrLost, name)
			}
		}
	}
	if !found {
		return fmt.Errorf("%w: guard: the context carries no lease of this store: use that of Do or of Lease.Context", driver.ErrInvalid)
	}
	return nil
}
