package dibs

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/acquire"
	"github.com/dibslock/dibs/internal/answer"
)

// public converts a store's error to this package's types. Each store error passes through it on
// its way to a caller or a hook.
func public(err error) error {
	switch e := err.(type) { //nolint:errorlint // withPublic handles wrapped errors
	case nil:
		return nil
	case *driver.UnavailableError:
		return unavailableError(e)
	case *driver.WrongTypeError:
		return wrongTypeError(e)
	}
	var unavailable *driver.UnavailableError
	var wrong *driver.WrongTypeError
	switch {
	case hasPublic(err):
		return err
	case errors.As(err, &unavailable):
		return withPublic{err, unavailableError(unavailable)}
	case errors.As(err, &wrong):
		return withPublic{err, wrongTypeError(wrong)}
	}
	return err
}

// publicRepeated is public for the last error of a repeated request. unknown means that some
// attempt may have taken effect, whatever the last error says.
func publicRepeated(err error, unknown bool) error {
	err = public(err)
	var u *UnavailableError
	if unknown && errors.As(err, &u) {
		u.Unknown = true
	}
	return err
}

// retry attempts a request repeatedly, like acquire.Sender.Retry, and returns a public error.
func (c *Client) retry(ctx context.Context, end time.Time, do func(acquire.Attempt) error) error {
	unknown := false
	err := c.acquirer.Retry(ctx, end, func(a acquire.Attempt) error {
		err := do(a)
		unknown = unknown || answer.MayArrive(err)
		return err
	})
	return publicRepeated(err, unknown)
}

// hasPublic reports whether errors.As already finds this package's errors.
func hasPublic(err error) bool {
	var unavailable *UnavailableError
	var wrong *WrongTypeError
	return errors.As(err, &unavailable) || errors.As(err, &wrong)
}

// withPublic is an error that wraps a store's error, for example from a store's decorator. Its text
// is unchanged.
type withPublic struct {
	error
	public error
}

// Unwrap makes errors.As find both.
func (e withPublic) Unwrap() []error { return []error{e.public, e.error} }
