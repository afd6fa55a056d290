package driver

import (
	"context"
	"time"
)

// An Inspector is a Store that returns the state of a name.
type Inspector interface {
	// Inspect returns the state of a name. If the key holds a value of another type, the
	// error is a WrongTypeError, which describes it.
	Inspect(ctx context.Context, name string) (State, error)
}

// A Lister is a Store that returns the names that are held, and the states of many names.
type Lister interface {
	// InspectAll returns the states of many names, in the order of the names. It needs as
	// few round trips as possible, and keeps the server busy for a few milliseconds at a
	// time at most. The states are not of one moment. A name whose key holds a value of
	// another type is no error here: its State has the description of the WrongTypeError.
	// Nor is a name that the user of the store may not read: its State has Err.
	// State.Fence may be zero, which means unknown. The fences of the holders are those of
	// Inspect.
	InspectAll(ctx context.Context, names []string) ([]State, error)

	// List returns the held names that match a glob (*, ?, [a-z], \ to quote), in no
	// order.
	List(ctx context.Context, pattern string) ([]string, error)
}

// A State is the state of a name at one moment.
type State struct {
	Name    string
	Holders []Holder // at most 100, those that expire first
	Holding int      // the number of all holders
	Waiters []Waiter // the first 100, in the order of service
	Waiting int      // the number of all waiters
	Fence   uint64   // no fence granted on this name is larger; of InspectAll, zero if unknown

	// Foreign is set if the lock key holds a value that dibs did not write, and nil in a
	// store that has no such values. If the value is a string, its only Holder has it as
	// Token: dibs waits for it, as for any holder. A value of another type is reported
	// by a WrongTypeError.
	Foreign *Foreign

	// Nodes are the states on the nodes of a quorum, in the order of the nodes. Other
	// stores have none.
	Nodes []NodeState

	// Err is why the state is not known: the user of the store may not read this name. Only
	// InspectAll sets it; then there is nothing else but the name.
	Err error
}

// A NodeState is the state of a name on one node of a quorum, or why it is not known.
type NodeState struct {
	State State
	Err   error
}

// A Kind is the primitive that a lease or a request belongs to. It is empty if it is not
// known: the application has chosen the token, or the lock is a foreign one.
type Kind string

// Kinds of locks.
const (
	KindMutex     Kind = "mutex"
	KindReader    Kind = "reader"
	KindWriter    Kind = "writer"
	KindSemaphore Kind = "semaphore"
	KindMulti     Kind = "multi"
	KindElection  Kind = "election"
	KindOnce      Kind = "once"
	KindAttached  Kind = "attached" // a lease of Client.Attach, whose primitive is unknown
)

// A Holder holds a name.
type Holder struct {
	Token     string
	Label     string
	Kind      Kind          // empty if not known
	Owner     string        // of a foreign lock: the owner as its library writes it, without a secret; may be empty
	Weight    int           // zero: exclusive
	Limit     int           // how much may be held together; zero if not known
	Fence     uint64        // zero if the store does not have it
	Remaining time.Duration // negative: it never expires, so the lock is a foreign one
	Reserved  bool          // the lease was released, and the name stays unavailable; no renewal extends it
}

// Exclusive reports whether the holder tolerates no other one.
func (h Holder) Exclusive() bool { return h.Weight == 0 }

// NeverExpires reports whether the holder has no remaining time, but stays.
func (h Holder) NeverExpires() bool { return h.Remaining < 0 }

// A Waiter waits for a name.
type Waiter struct {
	Token  string
	Label  string
	Kind   Kind // empty if not known
	Weight int  // how much of Limit the request takes; equal to it: exclusive
	Limit  int
	Waited time.Duration
}

// Exclusive reports whether the waiter tolerates no other holder. It is false if its weight is not
// known.
func (w Waiter) Exclusive() bool { return w.Weight > 0 && w.Weight == w.Limit }
