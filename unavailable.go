package dibs

import (
	"fmt"

	"github.com/dibslock/dibs/driver"
)

// An UnavailableError means that the store could not be reached, did not answer in time, or
// rejected the request. errors.Is finds ErrUnavailable and the cause.
type UnavailableError struct {
	Op    string // acquire, unlock, extend, …
	Name  string // empty if the operation concerns several names
	Cause error

	// Unknown means that the request may have taken effect. After Unlock, the name is free or will
	// be: dibs retries in the background, and the TTL ends the lease at the latest. After an
	// acquire, dibs removes in the background any lease or queue entry that the request left in the
	// store.
	Unknown bool

	source *driver.UnavailableError // from the store, or nil
}

func (e *UnavailableError) Error() string {
	s := "dibs: " + e.Op
	if e.Name != "" {
		s += fmt.Sprintf(" %q", e.Name)
	}
	s += ": store unavailable"
	if e.Unknown && e.Op == opUnlock {
		s += " (outcome unknown; the name is free when the TTL has passed, at the latest)"
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

const opUnlock = "unlock"

// Unwrap makes errors.Is find ErrUnavailable and the cause. errors.As also finds the store's error,
// for packages that build on a store.
func (e *UnavailableError) Unwrap() []error {
	all := joined(ErrUnavailable, e.Cause)
	if e.source != nil {
		all = append(all, e.source)
	}
	return all
}

// unavailableError converts a store's error. A request that only reads cannot have an unknown
// effect.
func unavailableError(e *driver.UnavailableError) *UnavailableError {
	reads := e.Op == "inspect" || e.Op == "list"
	return &UnavailableError{
		Op: e.Op, Name: e.Name, Cause: public(e.Cause), Unknown: !reads && !e.Refused && !e.Unsent, source: e,
	}
}
