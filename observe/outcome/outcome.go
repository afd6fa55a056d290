// Package outcome defines labels for call and lease results, for metrics and traces. Labels are
// small numbers, so that a metric is found without a hash. String returns the label's text.
package outcome

import (
	"context"
	"errors"

	"github.com/dibslock/dibs"
)

// A Kind is a dibs.Kind, or OtherKind.
type Kind int

// Kinds for calls and leases.
const (
	Mutex Kind = iota
	Reader
	Writer
	Semaphore
	Multi
	Election
	Once
	Attached
	OtherKind // a kind from a later dibs version
	Kinds     // how many kinds there are
)

func (k Kind) String() string {
	return [Kinds]string{
		string(dibs.KindMutex), string(dibs.KindReader), string(dibs.KindWriter), string(dibs.KindSemaphore), string(dibs.KindMulti),
		string(dibs.KindElection), string(dibs.KindOnce), string(dibs.KindAttached), "other",
	}[k]
}

// OfKind returns a kind's number.
func OfKind(k dibs.Kind) Kind {
	switch k {
	case dibs.KindMutex:
		return Mutex
	case dibs.KindReader:
		return Reader
	case dibs.KindWriter:
		return Writer
	case dibs.KindSemaphore:
		return Semaphore
	case dibs.KindMulti:
		return Multi
	case dibs.KindElection:
		return Election
	case dibs.KindOnce:
		return Once
	case dibs.KindAttached:
		return Attached
	}
	return OtherKind
}

// A Result says how an acquiring call ended.
type Result int

// Call results.
const (
	Acquired    Result = iota // a lease: the lock was free, or a repeated request acquired it
	Notified                  // a lease by a hand-off, with a notification
	Busy                      // the lock was held until the try or dibs.Wait was over
	Timeout                   // the context's deadline passed
	Canceled                  // the context was cancelled
	Unavailable               // the store could not be reached, did not answer in time, or rejected the request
	Closed                    // the dibs.Client was closed
	WrongType                 // the key holds a value that is not a lock
	Failed                    // any other error
	Results                   // how many results there are
)

func (r Result) String() string {
	return [Results]string{"acquired", "notified", "busy", "timeout", "canceled", "unavailable", "closed", "wrong_type", "error"}[r]
}

// OfCall returns a call's result.
func OfCall(e *dibs.AcquireEnd) Result {
	switch {
	case e.Err != nil:
		return OfError(e.Err)
	case e.Notified:
		return Notified
	}
	return Acquired
}

// OfError returns the result for a call without a lease. A deadline in the chain of an error may be
// a time limit of the store. The cause in a BusyError always comes from the caller's context.
func OfError(err error) Result {
	var held *dibs.BusyError
	switch {
	case errors.Is(err, dibs.ErrClosed):
		return Closed
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.As(err, &held):
		return ofWait(held.Cause)
	case errors.Is(err, dibs.ErrUnavailable):
		return Unavailable
	case errors.Is(err, dibs.ErrWrongType):
		return WrongType
	case errors.Is(err, context.DeadlineExceeded): // before the call
		return Timeout
	}
	return Failed
}

// ofWait returns an ended wait's result. cause is the context's cause.
func ofWait(cause error) Result {
	switch {
	case cause == nil:
		return Busy
	case errors.Is(cause, context.DeadlineExceeded):
		return Timeout
	}
	return Canceled
}

// An End says how a lease ended.
type End int

// Lease ends.
const (
	Released    End = iota // by Unlock or Detach
	Lost                   // before its release; Unlock may have noticed it
	Unconfirmed            // by an Unlock not confirmed by the store
	Ends                   // how many ends there are
)

func (e End) String() string { return [Ends]string{"released", "lost", "unavailable"}[e] }

// OfRelease returns how an unlocked lease ended, and the reason if it was lost.
func OfRelease(err error) (how End, why Reason) {
	if err == nil {
		return Released, 0
	}
	var loss *dibs.LostError
	if errors.As(err, &loss) {
		return Lost, OfReason(loss.Reason)
	}
	return Unconfirmed, 0
}

// A Reason is a lease's loss reason.
type Reason int

// The loss reasons.
const (
	Expired      Reason = iota // it was not renewed in time
	Missing                    // the store no longer contained it
	Revoked                    // an operator released it
	MaxHold                    // dibs.MaxHold passed
	ClientClosed               // the dibs.Client was closed
	OtherReason                // a reason unknown to this version
	Reasons                    // how many reasons there are
)

var reasons = [Reasons]dibs.Reason{dibs.ReasonExpired, dibs.ReasonMissing, dibs.ReasonRevoked, dibs.ReasonMaxHold, dibs.ReasonClosed, "other"}

func (r Reason) String() string { return string(reasons[r]) }

// OfReason returns a reason's number.
func OfReason(r dibs.Reason) Reason {
	for i, one := range reasons[:OtherReason] {
		if one == r {
			return Reason(i)
		}
	}
	return OtherReason
}
