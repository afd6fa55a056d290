package driver

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// A Foreign describes a value at a key of a lock that dibs did not write: a lock of another
// library, or data of another program.
type Foreign struct {
	Key       string        // the whole key
	Type      string        // its type, as the server names it: string, hash, …
	Kind      string        // what the value looks like: "Redisson RLock", "counter"
	Remaining time.Duration // until the key expires; negative: never
	Lock      bool          // it is a foreign lock: the State has its owners as Holders
	Advice    string        // what an operator can do, in one line
	Mark      any           // what a ForeignRevoker compares; nil if none ends it
}

// NeverExpires reports whether the key has no remaining time, but stays.
func (f Foreign) NeverExpires() bool { return f.Remaining < 0 }

// Removable reports whether a ForeignRevoker ends it.
func (f Foreign) Removable() bool { return f.Mark != nil }

// A ForeignRevoker is a Store that can end a foreign lock. A store whose State never has a
// Foreign need not implement it.
type ForeignRevoker interface {
	// RevokeForeign ends a foreign lock on a name by the rule of its library, and grants
	// the name to the next waiters. In the same atomic step it compares the lock with
	// seen, which Inspect has returned. If the lock is another one by now, or is gone,
	// nothing changes, and did is empty. Otherwise did says what was done. RevokeForeign
	// returns ErrInvalid if seen is not Removable.
	RevokeForeign(ctx context.Context, name string, seen Foreign) (did string, err error)
}

// A WrongTypeError reports that a key of a lock holds a value that is not a lock of dibs.
// Nothing was changed. errors.Is finds ErrWrongType in it, and the cause.
type WrongTypeError struct {
	Op    string // acquire, release, extend, …
	Name  string
	State State // Foreign describes the value, and is nil if the store could not read it; Holders are the owners of a foreign lock
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

// describeHolder formats a foreign owner and its remaining time. A token is shortened,
// because messages end in logs.
func describeHolder(h Holder) string {
	const known = 8
	token := []rune(h.Token)
	text := fmt.Sprintf("%q…", string(token[:min(len(token)/2, known)]))
	if len(token) == 1 { // any part of it would be the whole
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
