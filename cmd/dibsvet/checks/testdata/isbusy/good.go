package isbusy

import (
	"context"
	"errors"
	"io"

	"github.com/dibslock/dibs"
)

func is(err error) bool { return errors.Is(err, dibs.ErrBusy) }

func as(err error) string {
	var busy *dibs.BusyError
	if errors.As(err, &busy) {
		return string(busy.Holder)
	}
	if lost, ok := errors.AsType[*dibs.LostError](err); ok {
		return lost.Message
	}
	return ""
}

func none(err error) bool { return err == nil }

func noSentinel() bool { return dibs.ErrBusy != nil }

func two() bool { return dibs.ErrBusy == dibs.ErrLost }

func otherPackage(err error) bool { return err == io.EOF || err == context.Canceled }

func otherSwitch(err error) bool {
	switch err {
	case nil, io.EOF:
		return true
	}
	return false
}

func isSwitch(err error) bool {
	switch {
	case errors.Is(err, dibs.ErrBusy):
		return true
	}
	return false
}

func otherAssertion(err error) bool {
	_, ok := err.(interface{ Timeout() bool })
	return ok
}

func reason(e *dibs.LostError) bool { return e.Reason == dibs.ReasonExpired }

// errors.Is calls it for each error of a chain.
type failure struct{ error }

func (failure) Is(target error) bool { return target == dibs.ErrUnavailable }

func (f failure) As(target any) bool {
	lost, ok := f.error.(*dibs.LostError)
	if p, is := target.(**dibs.LostError); ok && is {
		*p = lost
	}
	return ok
}

func ErrBusy() error { return nil }

func ownName(err error) bool { return err == ErrBusy() }

func anyValue(v any) bool {
	_, ok := v.(dibs.State)
	return ok
}
