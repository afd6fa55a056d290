package lease

import (
	"errors"
	"strings"

	"github.com/dibslock/dibs/driver"
)

// A Reason is why a lease is not held.
type Reason uint8

// The reasons, and a held lease's state. The losses come last.
const (
	Held     Reason = iota
	Merged          // its names belong to another lease
	Released        // by its owner
	Expired         // not renewed in time
	MaxHold         // its longest time is over
	Missing         // the store no longer has it
	Revoked         // an operator released it
	Closed          // the client released it
)

// IsEnd reports whether the reason is a lease's end.
func (r Reason) IsEnd() bool { return r >= Merged }

// IsLoss reports whether the lease ended before its owner released it.
func (r Reason) IsLoss() bool { return r >= Expired }

// IsExpiry reports whether the clock ended the lease, and not a store's answer.
func (r Reason) IsExpiry() bool { return r == Expired || r == MaxHold }

// An End is why and how a lease ended.
type End struct {
	Reason  Reason
	Name    string // a lost name, or the first
	Cause   error  // the last renewal error, if it explains the loss
	Message string // from the operator who revoked it
}

// MissingEnd returns the end of a lease whose name the store no longer has, according to a
// request's error. The cause is the error's text about the loss, for instance about the key's
// present value. It is no ErrWrongType: the lease is lost in any case.
func MissingEnd(name string, err error) End {
	e := End{Reason: Missing, Name: name}
	var wrong *driver.WrongTypeError
	if errors.As(err, &wrong) {
		e.Cause = errors.New(strings.TrimPrefix(wrong.Error(), "dibs: "))
	} else if why, ok := strings.CutPrefix(err.Error(), driver.ErrLost.Error()+": "); ok {
		e.Cause = errors.New(why)
	}
	return e
}
