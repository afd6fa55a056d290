package dibshttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/dibslock/dibs"
)

// An Error is the response to a request whose handler did not run, or lost its lock while it ran.
// The function that you pass to [Lock] can return an Error.
type Error struct {
	Status     int           // the HTTP status, 400 to 599; any other is sent as 500
	RetryAfter time.Duration // the header Retry-After, in whole seconds, rounded up; zero: no header
	Message    string        // the body, for the client; empty: the status's text
	Err        error         // the cause, for logs; its text may name a lock's holder
}

// Error returns the status and the message, without Err's text.
func (e *Error) Error() string { return fmt.Sprintf("dibshttp: status %d: %s", e.Status, e.Message) }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// ofABody contains headers that describe a response's body. The response is not sent.
var ofABody = []string{
	"Accept-Ranges", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location",
	"Content-Range", "Etag", "Last-Modified", "Location", "Retry-After", "Trailer",
}

// Write sends the response as plain text. It removes headers that a handler may have set for its
// own body, such as Content-Encoding. It does not remove cookies, because a middleware may have set
// them.
func (e *Error) Write(w http.ResponseWriter) {
	status, message := e.Status, e.Message
	if status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	if message == "" {
		message = http.StatusText(status)
	}
	header := w.Header()
	for _, name := range ofABody {
		header.Del(name)
	}
	header.Set("Cache-Control", "no-store")
	if e.RetryAfter > 0 {
		header.Set("Retry-After", strconv.FormatInt(seconds(e.RetryAfter), 10))
	}
	http.Error(w, message, status)
}

const (
	unavailableRetry  = 5 * time.Second  // an outage can last
	neverExpiresRetry = 30 * time.Second // a foreign lock, which only its holder can end
	mostAhead         = 30               // a long queue belongs to a lock that is held for a short time
)

const notReleased = "the request was served, but its lock was not released"

// FromError returns the response for an error from a lock's Do. Use it in handlers that call Do
// themselves; Lock also uses it. The package comment lists the responses. If err wraps an Error,
// FromError returns this Error, unless the lease was lost. If err is nil, FromError returns nil.
//
// A 409 or 503 promises that the handler's work did not begin. So if dibs.DoError reports that Do's
// function ran, the response is a 500, even if that function found another lock busy.
func FromError(err error) *Error {
	var (
		own         *Error
		do          *dibs.DoError
		busy        *dibs.BusyError
		unavailable *dibs.UnavailableError
	)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, dibs.ErrLost): // first: the handler may have run in part without the lock
		return &Error{http.StatusInternalServerError, 0, "outcome unknown: the lock was lost during the request", err}
	case errors.As(err, &own):
		return own
	case errors.As(err, &do) && do.Ran && do.Work == nil:
		return &Error{http.StatusInternalServerError, 0, notReleased, err}
	case do != nil && do.Ran:
		return &Error{Status: http.StatusInternalServerError, Err: err}
	case errors.As(err, &busy):
		return &Error{http.StatusConflict, retryAfter(busy), "locked by another request", err}
	case do == nil && errors.As(err, &unavailable) && unavailable.Unknown && unavailable.Op == "unlock":
		return &Error{http.StatusInternalServerError, 0, notReleased, err}
	case errors.Is(err, dibs.ErrUnavailable), errors.Is(err, dibs.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &Error{http.StatusServiceUnavailable, unavailableRetry, "locks are unavailable", err}
	case errors.Is(err, dibs.ErrInvalid):
		return badRequest(err)
	}
	return &Error{Status: http.StatusInternalServerError, Err: err}
}

// badRequest returns the response to a request without a valid lock.
func badRequest(err error) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	return &Error{Status: http.StatusBadRequest, Err: err}
}

// retryAfter returns when a retry can succeed even after the holder crashed: when its lease is
// expired, and a second later for each waiter. It is at least one second, and exact for a reserved
// name.
func retryAfter(busy *dibs.BusyError) time.Duration {
	remaining := busy.Remaining
	if busy.NeverExpires {
		remaining = neverExpiresRetry
	}
	return max(remaining, time.Second) + time.Duration(min(busy.Ahead, mostAhead))*time.Second
}

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
