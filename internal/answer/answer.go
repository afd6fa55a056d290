// Package answer interprets a store's error for its request: whether the request may still take
// effect, and whether another attempt is useful.
package answer

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/load"
)

// IsKnown reports whether the store answered a request, so that another attempt is useless.
func IsKnown(err error) bool {
	return err == nil || errors.Is(err, driver.ErrLost) || IsRefusal(err) || IsPermanent(err)
}

// IsRefusal reports whether the store answered and rejected the request. Then an immediate
// retry is useless and nothing is left at the store.
func IsRefusal(err error) bool {
	u, ok := unavailable(err)
	return ok && u.Refused
}

// IsPermanent reports whether a retry can never succeed.
func IsPermanent(err error) bool {
	return errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrWrongType) || errors.Is(err, driver.ErrDisconnected)
}

// IsUnsent reports whether a request was not sent, so that it cannot arrive any more.
func IsUnsent(err error) bool {
	u, ok := unavailable(err)
	return ok && u.Unsent
}

// IsUnsentHere reports whether a request was not sent for a reason in this process, such as a full
// connection pool. It says nothing about the store.
func IsUnsentHere(err error) bool {
	u, ok := unavailable(err)
	return ok && u.Unsent && !u.Unreached
}

// MayArrive reports whether a request with this error, which is not nil, may still arrive at the store.
func MayArrive(err error) bool { return !IsKnown(err) && !IsUnsent(err) }

// Cause returns the cause of a store's failure, or the failure itself.
func Cause(err error) error {
	if u, ok := unavailable(err); ok && u.Cause != nil {
		return u.Cause
	}
	return err
}

// ForBudget returns the outcome for the budget, if the request's answer was due at until.
func ForBudget(ctx context.Context, err error, until time.Time) load.Outcome {
	switch {
	case !errors.Is(err, driver.ErrUnavailable) || IsRefusal(err):
		return load.Answered
	case IsUnsent(err) || ctx.Err() != nil:
		return load.Dropped
	case time.Now().Before(until):
		return load.Failed
	}
	return load.Unanswered
}

func unavailable(err error) (u *driver.UnavailableError, ok bool) {
	ok = errors.As(err, &u)
	return u, ok
}
