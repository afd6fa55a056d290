package ledger

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs"
)

// Names returns all names of a claim.
func Names(c dibs.AcquireRequest) []string { return append([]string{c.Name}, c.With...) }

// Check returns ErrInvalid for a claim that can never be served.
func Check(c dibs.AcquireRequest) error {
	for _, name := range Names(c) {
		if err := dibs.CheckName(name); err != nil {
			return err
		}
	}
	if c.Weight < 1 || c.Weight > c.Limit || c.Limit > dibs.Unlimited {
		return fmt.Errorf("%w: claim on %q weighs %d of %d", dibs.ErrInvalid, c.Name, c.Weight, c.Limit)
	}
	if len(c.With) > 0 && !c.Exclusive() {
		return fmt.Errorf("%w: claim on %q and others does not hold alone", dibs.ErrInvalid, c.Name)
	}
	if c.TTL <= 0 {
		return fmt.Errorf("%w: claim on %q for %v", dibs.ErrInvalid, c.Name, c.TTL)
	}
	return nil
}

// Ended returns an UnavailableError if the context of an operation has ended.
func Ended(ctx context.Context, op, name string) error {
	if ctx.Err() == nil {
		return nil
	}
	return &dibs.UnavailableError{Op: op, Name: name, Cause: context.Cause(ctx)}
}
