package driver

import (
	"errors"
	"fmt"
)

// An UnsupportedError reports that the store lacks the optional interface for a request. Nothing
// was sent. errors.Is finds errors.ErrUnsupported in it, and ErrInvalid, because the request can
// never succeed.
//
// A store also returns an UnsupportedError if its configuration does not allow the method.
type UnsupportedError struct {
	Op        string // revoke, inspect, …
	Name      string // empty if the operation concerns several names
	Store     Store
	Interface string // the missing interface, without its package
	Advice    string // an alternative for the caller
}

func (e *UnsupportedError) Error() string {
	text := ErrInvalid.Error() + ": " + e.Op
	if e.Name != "" {
		text += fmt.Sprintf(" %q", e.Name)
	}
	text += fmt.Sprintf(": the store %T is no driver.%s", e.Store, e.Interface)
	if e.Advice != "" {
		text += ": " + e.Advice + ", or use a store that is one"
	}
	return text + " (a store that forwards to another one embeds *driver.Full)"
}

// Unwrap makes errors.Is find ErrInvalid and errors.ErrUnsupported.
func (e *UnsupportedError) Unwrap() []error { return []error{ErrInvalid, errors.ErrUnsupported} }
