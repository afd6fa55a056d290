package driver

import (
	"errors"
	"fmt"
	"time"
)

// The errors that a store returns.
var (
	// ErrInvalid means that the request can never succeed as it is. Nothing was sent.
	ErrInvalid = errors.New("dibs: invalid")
	// ErrWrongType means that the key holds a value that is not a lock.
	ErrWrongType = errors.New("dibs: key holds a foreign value")
	// ErrLost means that the token does not hold the name.
	ErrLost = errors.New("dibs: lease lost")
	// ErrUnavailable means that the store could not be reached, did not answer in time, or
	// refused to serve. It is wrapped in an *UnavailableError.
	ErrUnavailable = errors.New("dibs: store unavailable")
)

// An UnavailableError is a store's trouble. errors.Is finds ErrUnavailable and
// the cause in it.
type UnavailableError struct {
	Op      string // acquire, release, extend, …
	Name    string // empty if it concerns many
	Cause   error
	Refused bool // the store answered, and did nothing: no outcome is unknown
	Unknown bool // set by Unlock: the name may or may not be free; dibs goes on trying
}

func (e *UnavailableError) Error() string {
	s := "dibs: " + e.Op
	if e.Name != "" {
		s += fmt.Sprintf(" %q", e.Name)
	}
	s += ": store unavailable"
	if e.Unknown {
		s += " (outcome unknown, free at the latest when the TTL has passed)"
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap makes errors.Is find ErrUnavailable and the cause.
func (e *UnavailableError) Unwrap() []error { return joined(ErrUnavailable, e.Cause) }

// A RestartedError is why a node of a quorum does not vote: it may have forgotten a lease
// that has not ended yet.
type RecoveringError struct {
	Node      string        // which store it is
	Remaining time.Duration // until it votes
}

func (e *RecoveringError) Error() string {
	return fmt.Sprintf("node %s was restarted, or is new, and votes again in %v: it may have forgotten a lease", e.Node, e.Remaining.Round(time.Millisecond))
}

func joined(kind, cause error) []error {
	if cause == nil {
		return []error{kind}
	}
	return []error{kind, cause}
}
