package dibs

import (
	"errors"
	"fmt"
	"time"

	leasestate "github.com/dibslock/dibs/internal/lease"
)

// Errors for use with errors.Is.
var (
	// ErrBusy means that the name is held, or reserved by MinHold or Once, and the try or the wait
	// is over. It is wrapped in a *BusyError, which describes the holder. If a context ended the
	// wait, errors.Is also finds its cause.
	ErrBusy = errors.New("dibs: busy")
	// ErrReleased means that the lease was used after its own Unlock.
	ErrReleased = errors.New("dibs: lease released")
	// ErrReentrant means that the context already carries a lease on the name, so a wait would
	// never end. Lock and TryLock both return ErrReentrant: see [Reentrant]. ErrReentrant also
	// means that another call or lease of the Client uses the call's OwnerToken.
	ErrReentrant = errors.New("dibs: already held in this context")
	// ErrClosed means that the Client was closed.
	ErrClosed = errors.New("dibs: client closed")
)

// ErrResigned is the cause of the contexts ended by Resign. The term is not lost: nobody else leads
// until the work ends and the lock is released.
var ErrResigned = errors.New("dibs: resigned")

// A BusyError describes the holder of a name that could not be acquired. errors.Is finds ErrBusy,
// and the context's cause if a context ended the wait.
//
// Its message shows only a short form of the holder's token: host:pid:label, or the quoted
// beginning of another library's value. Messages often end in logs, and a process with the whole
// token can act as the lease's owner.
type BusyError struct {
	Name      string
	Holder    Token         // the last known holder; may be empty
	Reserved  bool          // the holder released its lease; MinHold keeps the name unavailable
	Remaining time.Duration // until the holder's lease expires if not renewed, as in the store's last reply
	Ahead     int           // waiters ahead of this call when it joined the queue
	Cause     error         // why the wait ended, if a context ended it

	NeverExpires bool // the holder is another library's lock, which lasts until released; Remaining is zero
}

func (e *BusyError) Error() string {
	s := fmt.Sprintf("dibs: acquire %q: busy", e.Name)
	switch {
	case e.Holder == "" && e.Ahead == 0 && e.Cause != nil: // no known holder or waiter
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

// heldBy formats the holder and its lease's remaining time.
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

// A Reason says why a lease ended before its Unlock. Each Reason is a single word, for metric
// labels and log fields.
type Reason string

// Reasons in a LostError.
const (
	ReasonExpired Reason = "expired"  // not renewed in time
	ReasonMissing Reason = "missing"  // not in the store any more: released with the same token elsewhere, expired, deleted, or lost by the store
	ReasonRevoked Reason = "revoked"  // an operator released it
	ReasonMaxHold Reason = "max_hold" // MaxHold passed
	ReasonClosed  Reason = "closed"   // Client.Close released it
)

// A LostError means that a lease ended before its Unlock. errors.Is finds ErrLost and the cause.
type LostError struct {
	Name    string // for several names: the lost name, or the first name if unknown
	Token   Token
	Reason  Reason
	Message string // the reason given to Revoke; may be empty
	Cause   error  // the last renewal's error, if it explains the loss
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

// text returns the reason for an error message.
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

// lostError converts a lease's end to its error.
func lostError(e leasestate.End, token string) *LostError {
	reasons := [...]Reason{
		leasestate.Expired: ReasonExpired, leasestate.MaxHold: ReasonMaxHold,
		leasestate.Missing: ReasonMissing, leasestate.Revoked: ReasonRevoked, leasestate.Closed: ReasonClosed,
	}
	return &LostError{Name: e.Name, Token: Token(token), Reason: reasons[e.Reason], Message: e.Message, Cause: public(e.Cause)}
}

// Unwrap makes errors.Is find ErrLost and the cause.
func (e *LostError) Unwrap() []error { return joined(ErrLost, e.Cause) }

// A releasedError is the error for a lease after its Unlock.
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
