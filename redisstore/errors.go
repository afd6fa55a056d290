package redisstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/tlsadvice"
	"github.com/dibslock/dibs/redisstore/internal/pipeline"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

var errExpired = errors.New("request expired on arrival 3 times: the server's clock may be unstable")

// errOutcomeUnknown is for the caller to interpret, which has recorded whether it held the lock.
var errOutcomeUnknown = errors.New("outcome unknown: the first attempt timed out, and the retry found the lock not held")

// explainTLS adds advice to a TLS error if no retry can help. It returns nil for other errors.
func explainTLS(err error) error {
	var mismatch *redisconn.TLSMismatchError
	if errors.As(err, &mismatch) {
		return mismatch
	}
	return tlsadvice.Explain(err)
}

// wrapError turns err into a driver error. An error reply means that the server did nothing;
// otherwise the outcome is unknown.
func wrapError(op, name string, err error) error {
	if errors.Is(err, driver.ErrInvalid) {
		reason := strings.TrimPrefix(err.Error(), driver.ErrInvalid.Error()+": ")
		return fmt.Errorf("%w: %s %q: %s", driver.ErrInvalid, op, name, reason)
	}
	if explained := explainTLS(err); explained != nil {
		return &driver.UnavailableError{Op: op, Name: name, Cause: explained, Refused: true}
	}
	if errors.Is(err, redisconn.ErrClosed) {
		return &driver.UnavailableError{Op: op, Name: name, Cause: fmt.Errorf("%w: %w", driver.ErrDisconnected, err), Refused: true}
	}
	var server redisconn.ServerError
	if !errors.As(err, &server) {
		return &driver.UnavailableError{
			Op: op, Name: name, Cause: err, Unsent: pipeline.IsUnsent(err), Unreached: redisconn.Unopened(err),
		}
	}
	text := string(server)
	if strings.HasPrefix(text, "ERR Protocol error: unauthenticated") {
		// Redis checks a request's length before its user.
		err = redisconn.ServerError("NOAUTH Authentication required: " + text)
	}
	if strings.Contains(text, "WRONGTYPE") {
		return &driver.WrongTypeError{Op: op, Name: name, Cause: err}
	}
	if strings.Contains(text, redisconn.Full) { // the server closes such a connection unread
		return &driver.UnavailableError{Op: op, Name: name, Cause: err, Unsent: true, Unreached: true}
	}
	return &driver.UnavailableError{Op: op, Name: name, Cause: err, Refused: !server.Transient()}
}

// slotIsMigrating reports whether a slot is being moved to another server.
func slotIsMigrating(err error) bool { return redisconn.HasCode(err, "TRYAGAIN") }

// forbidden reports whether the user may not call a command, or the server does not support it.
func forbidden(err error) bool {
	return redisconn.HasCode(err, "NOPERM") || redisconn.HasCode(err, "ERR unknown command")
}
