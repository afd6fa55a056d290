package driver

import (
	"errors"
	"fmt"
	"time"
)

// Errors returned by a store.
var (
	// ErrInvalid means that the request can never succeed. Nothing was sent.
	ErrInvalid = errors.New("dibs: invalid")
	// ErrWrongType means that the key holds a value that is not a lock.
	ErrWrongType = errors.New("dibs: key holds a value that is not a lock")
	// ErrLost means that the token does not hold the name.
	ErrLost = errors.New("dibs: lease lost")
	// ErrUnavailable means that the store could not be reached, did not reply in time, or rejected
	// the request. It is wrapped in an *UnavailableError.
	ErrUnavailable = errors.New("dibs: store unavailable")
	// ErrNoTables means that a database lacks the store's tables or functions, or contains another
	// version. It is the cause in an *UnavailableError.
	ErrNoTables = errors.New("the tables of dibs are missing or of another version: run Migrate of the store, or the command dibs migrate")
	// ErrDisconnected means that the program closed the client or the pool used by the store, or
	// that the store's file was replaced. No later request can succeed. It is the cause in an
	// *UnavailableError.
	ErrDisconnected = errors.New("the program has closed the connections of the store")
)

// An UnavailableError is a failure of the store. errors.Is finds ErrUnavailable and the cause in
// it. Unless Refused or Unsent is set, the outcome is unknown: the store may execute the request,
// even later.
type UnavailableError struct {
	Op        string // acquire, release, extend, …
	Name      string // empty if the operation concerns several names
	Cause     error
	Refused   bool // the store rejected the request, and changed nothing
	Unsent    bool // the request was not sent, so it changed nothing; a retry can succeed
	Unreached bool // with Unsent: there was no connection for the request, so the store may be down
}

func (e *UnavailableError) Error() string {
	s := "dibs: " + e.Op
	if e.Name != "" {
		s += fmt.Sprintf(" %q", e.Name)
	}
	s += ": store unavailable"
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap makes errors.Is find ErrUnavailable and the cause.
func (e *UnavailableError) Unwrap() []error { return joined(ErrUnavailable, e.Cause) }

// A RecoveringError means that a quorum's node does not vote (grant locks) for a while: it is new
// or was restarted, so it may have lost an unexpired lease.
type RecoveringError struct {
	Node      string        // an identifier for the node's data, which changes if the data is lost
	Remaining time.Duration // until it votes
}

func (e *RecoveringError) Error() string {
	return fmt.Sprintf("node %s is new or was restarted and may have lost a lease; it votes again in %v", e.Node, e.Remaining.Round(time.Millisecond))
}

func joined(kind, cause error) []error {
	if cause == nil {
		return []error{kind}
	}
	return []error{kind, cause}
}
