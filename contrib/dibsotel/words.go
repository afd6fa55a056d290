package dibsotel

import (
	"context"
	"errors"

	"github.com/dibslock/dibs"
)

// A result is how a call that acquires ended.
type result int

const (
	resultAcquired    result = iota
	resultNotified           // by a hand-off, with a notification
	resultBusy               // until the try or dibs.Wait was over
	resultTimeout            // the deadline of the context has passed
	resultCanceled           // the context was cancelled
	resultUnavailable        // the store could not be reached, did not answer in time, or rejected the request
	resultClosed             // the dibs.Client was closed
	resultWrongType          // the key holds a value that is not a lock
	resultError              // anything else
	results                  // how many there are
)

func (r result) String() string {
	return [results]string{"acquired", "notified", "busy", "timeout", "canceled", "unavailable", "closed", "wrong_type", "error"}[r]
}

func resultOf(e *dibs.AcquireEnd) result {
	switch {
	case e.Err != nil:
		return resultOfError(e.Err)
	case e.Notified:
		return resultNotified
	}
	return resultAcquired
}

// resultOfError returns the result of a call without a lease. Only a BusyError says whether
// a deadline was that of the caller.
func resultOfError(err error) result {
	var busy *dibs.BusyError
	switch {
	case errors.Is(err, dibs.ErrClosed):
		return resultClosed
	case errors.Is(err, context.Canceled):
		return resultCanceled
	case errors.As(err, &busy):
		return resultOfWait(busy.Cause)
	case errors.Is(err, dibs.ErrUnavailable):
		return resultUnavailable
	case errors.Is(err, dibs.ErrWrongType):
		return resultWrongType
	case errors.Is(err, context.DeadlineExceeded): // before the call
		return resultTimeout
	}
	return resultError
}

// resultOfWait returns the result of a wait that ended. The cause is that of the context.
func resultOfWait(cause error) result {
	switch {
	case cause == nil:
		return resultBusy
	case errors.Is(cause, context.DeadlineExceeded):
		return resultTimeout
	}
	return resultCanceled
}

// An end is how a lease ended.
type end int

const (
	endReleased    end = iota // by Unlock or Detach
	endLost                   // before its release
	endUnavailable            // by an Unlock that the store has not confirmed
	ends                      // how many there are
)

func (e end) String() string { return [ends]string{"released", "lost", "unavailable"}[e] }

// endOf returns how a lease ended that was unlocked. For a lost one, loss is not nil.
func endOf(err error) (how end, loss *dibs.LostError) {
	switch {
	case err == nil:
		return endReleased, nil
	case errors.As(err, &loss):
		return endLost, loss
	}
	return endUnavailable, nil
}

// reasonOf returns a reason as one word.
func reasonOf(r dibs.Reason) string {
	switch r {
	case dibs.ReasonExpired, dibs.ReasonTaken, dibs.ReasonRevoked:
		return string(r)
	case dibs.ReasonMaxHold:
		return "max_hold"
	case dibs.ReasonClosed:
		return "closed"
	}
	return "other"
}
