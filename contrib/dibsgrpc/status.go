package dibsgrpc

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dibslock/dibs"
)

const (
	shortestRetry     = 100 * time.Millisecond
	unavailableRetry  = 5 * time.Second  // an outage can last
	neverExpiresRetry = 30 * time.Second // a foreign lock, which only its holder can end
	mostAhead         = 30               // a long queue belongs to a lock that is held for a short time
)

// FromError returns the status for Do's error, for methods that call Do themselves. The
// interceptors also use it. The package comment lists the codes. The result wraps err, and its text
// is the status's. For nil, FromError returns nil.
//
// A dibs.DoError says whether Do's function ran. If it ran and returned an error with a status,
// this status is the result. If it ran and returned any other error, the result is Internal, even
// if the function found another lock busy: other codes would promise that nothing was done.
func FromError(err error) error {
	var do *dibs.DoError
	var busy *dibs.BusyError
	var unavailable *dibs.UnavailableError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, dibs.ErrLost): // first: the method may have run in part without the lock
		return newError(codes.Internal, "outcome unknown: the lock was lost during the call", 0, err)
	case errors.As(err, &do) && do.Ran:
		return afterRun(err, do)
	case do == nil && errors.As(err, &unavailable) && unavailable.Unknown && unavailable.Op == "unlock":
		return newError(codes.Internal, notReleased, 0, err)
	case errors.Is(err, dibs.ErrUnavailable), errors.Is(err, dibs.ErrClosed): // before the context, whose error may be the cause
		return newError(codes.Unavailable, "locks are unavailable", unavailableRetry, err)
	case errors.Is(err, context.DeadlineExceeded):
		return newError(codes.DeadlineExceeded, "the deadline has passed during the wait for a lock", 0, err)
	case errors.Is(err, context.Canceled):
		return newError(codes.Canceled, "canceled during the wait for a lock", 0, err)
	case errors.As(err, &busy):
		return newError(codes.Aborted, "locked by another call", retryDelay(busy), err)
	case errors.Is(err, dibs.ErrInvalid):
		return badRequest(err)
	}
	return internal(err)
}

const notReleased = "the call was served, but its lock was not released"

// afterRun returns the status for a Do whose function ran without a loss.
func afterRun(err error, do *dibs.DoError) error {
	var own interface{ GRPCStatus() *status.Status }
	switch {
	case do.Work == nil:
		return newError(codes.Internal, notReleased, 0, err)
	case errors.As(do.Work, &own):
		return err
	}
	return newError(codes.Internal, "the work under the lock failed", 0, err)
}

// badRequest returns the status for a call without a valid lock.
func badRequest(err error) error {
	var own interface{ GRPCStatus() *status.Status }
	if errors.As(err, &own) {
		return err
	}
	return newError(codes.InvalidArgument, "no valid lock for this request", 0, err)
}

// internal returns the status for a server fault.
func internal(err error) error { return newError(codes.Internal, "the lock cannot be used", 0, err) }

// retryDelay returns when a retry can succeed even after the holder crashed: when its lease is
// expired, and a second later for each waiter.
func retryDelay(busy *dibs.BusyError) time.Duration {
	remaining := busy.Remaining
	if busy.NeverExpires {
		remaining = neverExpiresRetry
	}
	return max(remaining, shortestRetry) + time.Duration(min(busy.Ahead, mostAhead))*time.Second
}

// A statusError contains the status for the client and the error for the server. Its text is the
// status's, because gRPC sends the text of any error that wraps it.
type statusError struct {
	status *status.Status
	err    error
}

func newError(code codes.Code, message string, retry time.Duration, err error) error {
	s := status.New(code, message)
	if retry > 0 {
		// It fails for the code OK only.
		if detailed, failed := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(retry)}); failed == nil {
			s = detailed
		}
	}
	return &statusError{s, err}
}

func (e *statusError) Error() string { return e.status.String() }

// GRPCStatus is for package status.
func (e *statusError) GRPCStatus() *status.Status { return e.status }

// Unwrap returns the dibs error.
func (e *statusError) Unwrap() error { return e.err }
