package locktable

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs/driver"
)

// Names returns all names of a request.
func Names(c driver.AcquireRequest) []string { return append([]string{c.Name}, c.With...) }

// CheckRequest returns ErrInvalid for a request that can never succeed.
func CheckRequest(c driver.AcquireRequest) error {
	for _, name := range Names(c) {
		if err := driver.CheckName(name); err != nil {
			return err
		}
	}
	if c.Weight < 1 || c.Weight > c.Limit || c.Limit > driver.Unlimited {
		return fmt.Errorf("%w: request for %q with weight %d of limit %d", driver.ErrInvalid, c.Name, c.Weight, c.Limit)
	}
	if len(c.With) > 0 && !c.Exclusive() {
		return fmt.Errorf("%w: request for %q and other names is not exclusive", driver.ErrInvalid, c.Name)
	}
	if c.TTL <= 0 {
		return fmt.Errorf("%w: request for %q with TTL %v", driver.ErrInvalid, c.Name, c.TTL)
	}
	return nil
}

// ContextEnded returns an UnavailableError if the context of an operation has ended.
func ContextEnded(ctx context.Context, op, name string) error {
	if ctx.Err() == nil {
		return nil
	}
	return &driver.UnavailableError{Op: op, Name: name, Cause: context.Cause(ctx)}
}
