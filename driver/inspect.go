package driver

import (
	"context"
	"time"
)

// An Inspector is a Store that can return a name's state.
type Inspector interface {
	// Inspect returns a name's state. If the key holds a value of another type, the error is a
	// WrongTypeError, which describes the value.
	Inspect(ctx context.Context, name string) (State, error)
}

// A Lister is a Store that can list the held names, and return the states of many names.
type Lister interface {
	// InspectAll returns the states for many names, in the order of the names. It needs as few
	// round trips as possible, and occupies the server for at most a few milliseconds at a time.
	// The states are not read at the same moment.
	//
	// Two problems affect only a name's own State, and are no errors here. If the name's key holds
	// a value of another type, the State is the same as in Inspect's WrongTypeError. If the store's
	// user may not read the name, the State contains Err.
	//
	// State.Fence may be zero, which means unknown. The holders have the same fences as in Inspect.
	InspectAll(ctx context.Context, names []string) ([]State, error)

	// List returns the held names that match a glob (*, ?, [a-z], \ to quote), unsorted.
	List(ctx context.Context, pattern string) ([]string, error)
}

// A State is a name's state at one moment.
type State struct {
	Name    string
	Holders []Holder // at most 100: those that expire first
	Holding int      // how many holders there are, listed or not
	Waiters []Waiter // the first 100, in the order in which they are served
	Waiting int      // how many waiters there are, listed or not
	Fence   uint64   // at least as large as each fence granted on this name; from InspectAll it may be zero: unknown

	// Foreign is set if the lock's key holds a value not written by dibs. It is nil in a store
	// without such values. A string value is the Token of the only Holder: dibs waits for it, as
	// for any holder. A value of another type is reported by a WrongTypeError.
	Foreign *Foreign

	// Nodes contains the state on each node of a quorum, in the order of the nodes. Other stores
	// leave it empty.
	Nodes []NodeState

	// Err is set only by InspectAll: the store's user may not read this name. Then only Name is set
	// as well.
	Err error
}

// A NodeState is a name's state on a quorum's node, or the reason why it is unknown.
type NodeState struct {
	State State
	Err   error
}

// A Kind is the primitive behind a lease or a request. It is empty if unknown: the application
// chose the token, or the lock is foreign.
type Kind string

// The kinds of locks.
const (
	KindMutex     Kind = "mutex"
	KindReader    Kind = "reader"
	KindWriter    Kind = "writer"
	KindSemaphore Kind = "semaphore"
	KindMulti     Kind = "multi"
	KindElection  Kind = "election"
	KindOnce      Kind = "once"
	KindAttached  Kind = "attached" // a lease from Client.Attach, whose primitive is unknown
)

// A Holder holds a name.
type Holder struct {
	Token     string
	Label     string
	Kind      Kind          // empty if unknown
	Owner     string        // a foreign lock's owner as its library writes it, without a secret; may be empty
	Weight    int           // zero: exclusive
	Limit     int           // how much may be held together; zero if unknown
	Fence     uint64        // zero if the store did not record it
	Remaining time.Duration // negative: it never expires, so the lock is foreign
	Reserved  bool          // the lease was released, but the name stays unavailable; no renewal extends it
}

// Exclusive reports whether the holder excludes all others.
func (h Holder) Exclusive() bool { return h.Weight == 0 }

// NeverExpires reports whether the holder stays without a time limit.
func (h Holder) NeverExpires() bool { return h.Remaining < 0 }

// A Waiter waits for a name.
type Waiter struct {
	Token  string
	Label  string
	Kind   Kind // empty if unknown
	Weight int  // how much the request takes from Limit; equal to Limit: exclusive
	Limit  int
	Waited time.Duration
}

// Exclusive reports whether the waiter excludes all other holders. It returns false if the weight
// is unknown.
func (w Waiter) Exclusive() bool { return w.Weight > 0 && w.Weight == w.Limit }
