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
