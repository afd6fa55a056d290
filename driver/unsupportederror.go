package driver

import (
	"errors"
	"fmt"
)

// An UnsupportedError is the error of a request for which the store lacks an optional interface.
// Nothing was sent. errors.Is finds ErrInvalid in it, because the request can never succeed, and
// errors.ErrUnsupported.
//
// A store that has the method, but cannot do it in its configuration, also returns an
// UnsupportedError.
type UnsupportedError struct {
	Op        string // revoke, inspect, …
	Name      string // empty if the operation concerns several names
	Store     Store
	Interface string // that the store lacks, without its package
	Advice    string // what the caller can do instead
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
