// Package isbusy compares wrapped errors.
package isbusy

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

func equal(err error) bool { return err == dibs.ErrBusy } // want `errors of dibs are wrapped, so == does not find them: use errors.Is\(err, dibs.ErrBusy\)`

func notEqual(err error) bool { return err != dibs.ErrLost } // want `use !errors.Is\(err, dibs.ErrLost\)`

func reversed(err error) bool { return dibs.ErrInvalid == err } // want `use errors.Is\(err, dibs.ErrInvalid\)`

func ofDriver(err error) bool { return err == driver.ErrUnavailable } // want `use errors.Is`

func cause(ctx context.Context) bool { return context.Cause(ctx) == dibs.ErrLost } // want `use errors.Is\(context.Cause\(ctx\), dibs.ErrLost\)`

func cases(err error) string {
	switch err {
	case nil:
		return "done"
	case dibs.ErrBusy, dibs.ErrReentrant: // want `so this case does not find them: use case errors.Is\(err, dibs.ErrBusy\)`
		return "held"
	case context.Canceled:
		return "cancelled"
	}
	return "failed"
}

func casesWithInit(run func() error) string {
	switch err := run(); err {
	case dibs.ErrClosed: // want `so this case does not find them`
		return "closed"
	default:
		return fmt.Sprint(err)
	}
}

// There is no fix: each case would call the function.
func casesOfCall(run func() error) bool {
	switch run() {
	case dibs.ErrBusy: // want `so this case does not find them`
		return true
	}
	return false
}

func assertion(err error) string {
	if busy, ok := err.(*dibs.BusyError); ok { // want `so this type assertion does not find them: use errors.AsType\[\*dibs.BusyError\]\(err\)`
		return string(busy.Holder)
	}
	lost, ok := err.(*dibs.LostError) // want `use errors.AsType\[\*dibs.LostError\]`
	if !ok {
		return ""
	}
	return string(lost.Reason)
}

// There is no fix: it panics if the type is another one.
func assertionPanics(err error) bool {
	return err.(*dibs.UnavailableError).Unknown // want `so this type assertion does not find them`
}

func typeSwitch(err error) string {
	switch e := err.(type) {
	case *dibs.BusyError: // want `so this case does not find them: use errors.AsType\[\*dibs.BusyError\]`
		return e.Name
	case *driver.UnavailableError: // want `so this case does not find them`
		return e.Op
	}
	return ""
}

// There is no fix: here errors is not the package.
func shadowed(err error, errors []error) bool {
	return err == dibs.ErrBusy && len(errors) == 0 // want `errors of dibs are wrapped`
}
