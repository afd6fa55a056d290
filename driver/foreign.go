package driver

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// A Foreign describes another program's value at a lock's key: another library's lock, or other
// data.
type Foreign struct {
	Key       string        // the whole key
	Type      string        // the server's name for the value's type: string, hash, …
	Kind      string        // the likely origin: "Redisson RLock", "counter"
	Remaining time.Duration // until the key expires; negative: never
	Lock      bool          // the value is another library's lock; State.Holders are its owners
	Advice    string        // advice for an operator, in a single line
	Mark      any           // the store's copy of the lock, by which RevokeForeign detects a change; nil if the lock cannot be revoked
}

// NeverExpires reports whether the key stays without a time limit.
func (f Foreign) NeverExpires() bool { return f.Remaining < 0 }

// Removable reports whether a ForeignRevoker can end the foreign lock.
func (f Foreign) Removable() bool { return f.Mark != nil }

// A ForeignRevoker is a Store that can end a foreign lock, which another library made. A store that
// only dibs uses need not implement it.
type ForeignRevoker interface {
	// RevokeForeign ends a foreign lock as the lock's library does, and grants the name to the next
	// waiters. seen is the State.Foreign from Inspect. In the same atomic step RevokeForeign compares
	// the lock with seen. If the lock changed since Inspect, or is gone, RevokeForeign does nothing,
	// and did is empty. Otherwise did describes the change for an operator. RevokeForeign returns
	// ErrInvalid if seen is not Removable.
	RevokeForeign(ctx context.Context, name string, seen Foreign) (did string, err error)
}

// A WrongTypeError reports that a lock's key holds a value in a form that dibs does not use for
// locks. Nothing was changed. errors.Is finds ErrWrongType and the cause in it.
type WrongTypeError struct {
	Op    string // acquire, release, extend, …
	Name  string
	State State // Foreign describes the value, or is nil if the store could not read it; for another library's lock, Holders are its owners
	Cause error // the server's reply
}

func (e *WrongTypeError) Error() string {
	head := fmt.Sprintf("dibs: %s %q: ", e.Op, e.Name)
	f := e.State.Foreign
	if f == nil {
		return head + "the key holds a value that is not a lock of dibs; nothing was changed"
	}
	text := head + fmt.Sprintf("key %q holds a %s that is not a lock of dibs", f.Key, f.Type)
	if f.Kind != f.Type {
		text += ": " + f.Kind
	}
	if len(e.State.Holders) > 0 {
		text += ", held by " + describeHolder(e.State.Holders[0])
	}
	return text + "; nothing was changed; " + f.Advice
}

// describeHolder formats a foreign owner and its remaining time. It shortens tokens, because
// messages often end up in logs.
func describeHolder(h Holder) string {
	const known = 8
	token := []rune(h.Token)
	text := fmt.Sprintf("%q…", string(token[:min(len(token)/2, known)]))
	if len(token) == 1 { // any part would be the whole
		text = "a value with a single character"
	}
	if h.Owner != "" {
		text = strconv.Quote(h.Owner)
	}
	if h.NeverExpires() {
		return text + ", never expires"
	}
	return text + fmt.Sprintf(" for another %v", h.Remaining.Round(time.Millisecond))
}

// Unwrap makes errors.Is find ErrWrongType and the cause.
func (e *WrongTypeError) Unwrap() []error { return joined(ErrWrongType, e.Cause) }
