package dibsprom

import (
	"context"
	"errors"

	"github.com/dibslock/dibs"
)

// Values of the label result of dibs_acquire_seconds: how a call ended.
const (
	ResultAcquired    = "acquired"    // it has a lease: the lock was free, or a repeated request acquired it
	ResultNotified    = "notified"    // it has a lease by a hand-off, with a notification
	ResultBusy        = "busy"        // the lock was held until the try or dibs.Wait was over
	ResultTimeout     = "timeout"     // the deadline of its context has passed
	ResultCanceled    = "canceled"    // its context was cancelled
	ResultUnavailable = "unavailable" // the store could not be reached, did not answer in time, or rejected the request
	ResultClosed      = "closed"      // the dibs.Client was closed
	ResultWrongType   = "wrong_type"  // the key holds a value that is not a lock
	ResultError       = "error"       // anything else
)

// Values of the label end of dibs_held_seconds: how a lease ended.
const (
	EndReleased    = "released"    // by Unlock or Detach
	EndLost        = "lost"        // before its release; Unlock may have noticed it
	EndUnavailable = "unavailable" // by an Unlock that the store has not confirmed
)

// Values of the label reason of dibs_lost_total: the reasons of a dibs.LostError.
const (
	ReasonExpired = "expired"  // it was not renewed in time
	ReasonTaken   = "taken"    // the store no longer had it
	ReasonRevoked = "revoked"  // an operator released it
	ReasonMaxHold = "max_hold" // dibs.MaxHold has passed
	ReasonClosed  = "closed"   // the dibs.Client was closed
	ReasonOther   = "other"    // a reason that this version does not have
)

// Label values as numbers, to find a series without a hash. Each has its text at its place.
type (
	kind   int
	result int
	end    int
	reason int
)

const (
	mutex kind = iota
	reader
	writer
	semaphore
	multi
	election
	once
	attached
	otherKind
	kinds
)

const (
	acquired result = iota
	notified
	busy
	timeout
	canceled
	unavailable
	closed
	wrongType
	failed
	results
)

const (
	released end = iota
	lost
	unconfirmed
	ends
)

const (
	expired reason = iota
	taken
	revoked
	maxHold
	clientClosed
	otherReason
	reasons
)

func (k kind) String() string {
	return [kinds]string{
		string(dibs.KindMutex), string(dibs.KindReader), string(dibs.KindWriter), string(dibs.KindSemaphore), string(dibs.KindMulti),
		string(dibs.KindElection), string(dibs.KindOnce), string(dibs.KindAttached), "other",
	}[k]
}

func (r result) String() string {
	return [results]string{
		ResultAcquired, ResultNotified, ResultBusy, ResultTimeout, ResultCanceled, ResultUnavailable, ResultClosed, ResultWrongType, ResultError,
	}[r]
}

func (e end) String() string { return [ends]string{EndReleased, EndLost, EndUnavailable}[e] }

func (r reason) String() string {
	return [reasons]string{ReasonExpired, ReasonTaken, ReasonRevoked, ReasonMaxHold, ReasonClosed, ReasonOther}[r]
}

func kindOf(k dibs.Kind) kind {
	switch k {
	case dibs.KindMutex:
		return mutex
	case dibs.KindReader:
		return reader
	case dibs.KindWriter:
		return writer
	case dibs.KindSemaphore:
		return semaphore
	case dibs.KindMulti:
		return multi
	case dibs.KindElection:
		return election
	case dibs.KindOnce:
		return once
	case dibs.KindAttached:
		return attached
	}
	return otherKind
}

func resultOf(e dibs.AcquireEnd) result {
	switch {
	case e.Err != nil:
		return resultOfError(e.Err)
	case e.Notified:
		return notified
	}
	return acquired
}

// resultOfError returns the result of a call without a lease. Only an error with a BusyError
// says whether a deadline was that of the caller.
func resultOfError(err error) result {
	var held *dibs.BusyError
	switch {
	case errors.Is(err, dibs.ErrClosed):
		return closed
	case errors.Is(err, context.Canceled):
		return canceled
	case errors.As(err, &held):
		return resultOfWait(held.Cause)
	case errors.Is(err, dibs.ErrUnavailable):
		return unavailable
	case errors.Is(err, dibs.ErrWrongType):
		return wrongType
	case errors.Is(err, context.DeadlineExceeded): // before the call
		return timeout
	}
	return failed
}

// resultOfWait returns the result of a wait that ended. The cause is that of the context.
func resultOfWait(cause error) result {
	switch {
	case cause == nil:
		return busy
	case errors.Is(cause, context.DeadlineExceeded):
		return timeout
	}
	return canceled
}

// endOf returns how a lease ended that was unlocked, and the reason if it was lost.
func endOf(err error) (end, reason) {
	if err == nil {
		return released, 0
	}
	var loss *dibs.LostError
	if errors.As(err, &loss) {
		return lost, reasonOf(loss.Reason)
	}
	return unconfirmed, 0
}

func reasonOf(r dibs.Reason) reason {
	switch r {
	case dibs.ReasonExpired:
		return expired
	case dibs.ReasonTaken:
		return taken
	case dibs.ReasonRevoked:
		return revoked
	case dibs.ReasonMaxHold:
		return maxHold
	case dibs.ReasonClosed:
		return clientClosed
	}
	return otherReason
}
