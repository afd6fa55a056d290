package locktable

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs/driver"
)

// Names returns all names of a claim.
func Names(c driver.AcquireRequest) []string { return append([]string{c.Name}, c.With...) }

// Check returns ErrInvalid for a claim that can never be served.
func CheckRequest(c driver.AcquireRequest) error {
	for _, name := range Names(c) {
		if err := driver.CheckName(name); err != nil {
			return err
		}
	}
	if c.Weight < 1 || c.Weight > c.Limit || c.Limit > driver.Unlimited {
		return fmt.Errorf("%w: claim on %q weighs %d of %d", driver.ErrInvalid, c.Name, c.Weight, c.Limit)
	}
	if len(c.With) > 0 && !c.Exclusive() {
		return fmt.Errorf("%w: claim on %q and others does not hold alone", driver.ErrInvalid, c.Name)
	}
	if c.TTL <= 0 {
		return fmt.Errorf("%w: claim on %q for %v", driver.ErrInvalid, c.Name, c.TTL)
	}
	return nil
}

// Ended returns an UnavailableError if the context of an operation has ended.
func ContextEnded(ctx context.Context, op, name string) error {
	if ctx.Err() == nil {
		return nil
	}
	return &driver.UnavailableError{Op: op, Name: name, Cause: context.Cause(ctx)}
}
