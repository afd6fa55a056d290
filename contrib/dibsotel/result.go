package dibsotel

import (
	"context"
	"errors"

	"github.com/dibslock/dibs"
)

// A result is the outcome of a call that acquires.
type result int

const (
	resultOK result = iota
	resultNotified
	resultBusy
	resultCancelled
	resultUnavailable
	resultInvalid
	resultClosed
	resultOther
	results // how many there are
)

var resultNames = [results]string{"ok", "notified", "busy", "cancelled", "unavailable", "invalid", "closed", "other"}

func (r result) String() string { return resultNames[r] }

func resultOf(e *dibs.AcquireEnd) result {
	if e.Err == nil {
		if e.Notified {
			return resultNotified
		}
		return resultOK
	}
	return resultOfError(e.Err)
}

func resultOfError(err error) result {
	var busy *dibs.BusyError
	switch {
	case errors.As(err, &busy) && busy.Cause != nil && !errors.Is(busy.Cause, context.DeadlineExceeded):
		return resultCancelled
	case errors.Is(err, dibs.ErrBusy):
		return resultBusy
	case errors.Is(err, dibs.ErrUnavailable) && !errors.Is(err, context.Canceled):
		return resultUnavailable
	case errors.Is(err, context.Canceled):
		return resultCancelled
	case errors.Is(err, dibs.ErrInvalid):
		return resultInvalid
	case errors.Is(err, dibs.ErrClosed):
		return resultClosed
	}
	return resultOther
}
