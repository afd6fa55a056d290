package locktable

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
)

// Admit returns an UnavailableError if an operation's context is over, or if the operation is late.
// until is zero for an operation without a time limit.
func Admit(ctx context.Context, op, name string, until, now time.Time) error {
	switch {
	case ctx.Err() != nil:
		return &driver.UnavailableError{Op: op, Name: name, Cause: context.Cause(ctx)}
	case !until.IsZero() && now.After(until):
		return &driver.UnavailableError{Op: op, Name: name, Cause: ErrLate}
	}
	return nil
}

// ErrLate is the error for a late operation, which changed nothing.
var ErrLate = errors.New("the request arrived after its time limit")
