package locktable

import (
	"context"

	"github.com/dibslock/dibs/driver"
)

// ContextEnded returns an UnavailableError if the context of an operation has ended.
func ContextEnded(ctx context.Context, op, name string) error {
	if ctx.Err() == nil {
		return nil
	}
	return &driver.UnavailableError{Op: op, Name: name, Cause: context.Cause(ctx)}
}

// CheckNames returns an error if a context has ended, or one of the names to inspect is not
// valid.
func CheckNames(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := driver.CheckName(name); err != nil {
			return err
		}
	}
	return ContextEnded(ctx, "inspect", "")
}
