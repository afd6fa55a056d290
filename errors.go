package dibs

import (
	"errors"
	"fmt"
	"time"

	leasestate "github.com/dibslock/dibs/internal/lease"
)

// Errors of this package, for errors.Is.
var (
	// ErrBusy means that the name is held, or reserved by MinHold or Once, and that the
	// try or the wait is over. It is wrapped in a *BusyError, which has the holder. If a
	// context ended the wait, errors.Is also finds its cause.
	ErrBusy = errors.New("dibs: busy")
	// ErrReleased means that the lease was used after its own Unlock.
	ErrReleased = errors.New("dibs: lease released")
	// ErrReentrant means that the context already carries a lease on the name, so that
	// waiting would never end. A Try call returns it, too. See [Reentrant]. It also means that
	// another call or lease of the Client has the Token of the call.
	ErrReentrant = errors.New("dibs: already held in this context")
	// ErrClosed means that the Client was closed.
	ErrClosed = errors.New("dibs: client closed")
)

// ErrResigned is the cause with which the context of a leader ends after Resign. The term
// is not lost: nobody else leads until the work has ended and the lock is released.
var ErrResigned = errors.New("dibs: resigned")

// A BusyError has the holder of a name that could not be acquired. errors.Is finds
// ErrBusy in it, and the context's cause if a context ended the wait.
//
// Its message shows a short form of the holder's token: host:pid:label, or the quoted
// beginning of another library's value. A process that has a token can act as its owner,
// and messages end in logs.
type BusyError struct {
	Name      string
	Holder    Token         // of the last known holder; may be empty
	Reserved  bool          // the holder has released its lease; MinHold keeps the name unavailable
	Remaining time.Duration // at the store's last reply: until the lease expires, unless it is renewed
	Ahead     int           // waiters ahead of this one when it queued
	Cause     error         // why the wait ended, if a context ended it

	NeverExpires bool // the holder is a lock of another library that lasts until it is released; Remaining is zero
}

func (e *BusyError) Error() string {
	s := fmt.Sprintf("dibs: acquire %q: busy", e.Name)
	switch {
	case e.Holder == "" && e.Ahead == 0 && e.Cause != nil: // no holder and no waiter is known
		return fmt.Sprintf("dibs: acquire %q: %v", e.Name, e.Cause)
	case e.Holder != "":
		s = fmt.Sprintf("dibs: acquire %q: %s", e.Name, e.heldBy())
	}
	if e.Ahead > 0 {
		s += fmt.Sprintf(", %d ahead in the queue", e.Ahead)
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// heldBy formats the holder and the remaining time of its lease.
func (e *BusyError) heldBy() string {
	verb, holder := "held", e.Holder.String()
	if e.Reserved {
		verb = "reserved"
	}
	switch left := e.Remaining; {
	case e.NeverExpires:
		return fmt.Sprintf("%s by %s, never expires", verb, holder)
	case left >= 10*time.Second:
		return fmt.Sprintf("%s by %s for another %v", verb, holder, left.Round(time.Second))
	default:
		return fmt.Sprintf("%s by %s for another %v", verb, holder, left.Round(time.Millisecond))
	}
}

// Unwrap makes errors.Is find ErrBusy and the cause.
func (e *BusyError) Unwrap() []error { return joined(ErrBusy, e.Cause) }

// A Reason is the cause for which a lease ended before its Unlock. It is one word, for labels of
// metrics and fields of logs.
type Reason string

// Reasons of a LostError.
const (
	ReasonExpired Reason = "expired"  // not renewed in time
	ReasonMissing Reason = "missing"  // the store no longer has it: released elsewhere, deleted, or lost
	ReasonRevoked Reason = "revoked"  // an operator released it
	ReasonMaxHold Reason = "max_hold" // MaxHold has passed
	ReasonClosed  Reason = "closed"   // Client.Close released it
)

// A LostError is the error of a lease that ended before its Unlock. errors.Is finds
// ErrLost in it, and the cause.
type LostError struct {
	Name    string // of several names, one that is lost, or the first
	Token   Token
	Reason  Reason
	Message string // what the operator gave to Revoke; may be empty
	Cause   error  // the last error of a renewal, if it explains the loss
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("dibs: lease on %q lost: %s", e.Name, e.Reason.text())
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// text returns the reason for the message of an error.
func (r Reason) text() string {
	switch r {
	case ReasonMissing:
		return "the store no longer has it: released elsewhere, expired, deleted, or lost by the store"
	case ReasonMaxHold:
		return "held too long"
	case ReasonClosed:
		return "client closed"
	}
	return string(r)
}

// lostError returns the error of a lease that has ended in this way.
func lostError(e leasestate.End, token string) *LostError {
	reasons := [...]Reason{
		leasestate.Expired: ReasonExpired, leasestate.MaxHold: ReasonMaxHold,
		leasestate.Missing: ReasonMissing, leasestate.Revoked: ReasonRevoked, leasestate.Closed: ReasonClosed,
	}
	return &LostError{Name: e.Name, Token: Token(token), Reason: reasons[e.Reason], Message: e.Message, Cause: public(e.Cause)}
}

// Unwrap makes errors.Is find ErrLost and the cause.
func (e *LostError) Unwrap() []error { return joined(ErrLost, e.Cause) }

// A releasedError is the state of a lease after its Unlock.
type releasedError struct{ name string }

func (e releasedError) Error() string { return fmt.Sprintf("%v: %q", ErrReleased, e.name) }

// Unwrap makes errors.Is find ErrReleased.
func (e releasedError) Unwrap() error { return ErrReleased }

func joined(kind, cause error) []error {
	if cause == nil {
		return []error{kind}
	}
	return []error{kind, cause}
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}
