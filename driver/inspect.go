package driver

import (
	"context"
	"time"
)

// An Inspector is a Store that can return a name's state.
type Inspector interface {
	// Inspect returns a name's state. If the name's key holds a value in a form that dibs does not use
	// for locks, the error is a WrongTypeError, which describes the value.
	Inspect(ctx context.Context, name string) (State, error)
}

// A Lister is a Store that can list the held names, and return the states of many names.
type Lister interface {
	// InspectAll returns the i-th name's state as its i-th result. It should use as few round trips as
	// possible, and block the server for at most a few milliseconds at a time. It reads the states at
	// different moments.
	//
	// InspectAll returns no error for two problems with a single name. If a name's key holds a value
	// of another type, its State is the same as in Inspect's WrongTypeError. If the store's user may
	// not read a name, its State contains Err.
	//
	// State.Fence may be zero, which means unknown. Holder.Fence is the same as in Inspect.
	InspectAll(ctx context.Context, names []string) ([]State, error)

	// List returns the held names that match a glob (*, ?, [a-z], \ to quote), unsorted.
	List(ctx context.Context, pattern string) ([]string, error)
}

// A State is a name's state at one moment.
type State struct {
	Name    string
	Holders []Holder // at most 100: those that expire first
	Holding int      // the number of all holders, also if not in Holders
	Waiters []Waiter // the first 100, in the order in which they are served
	Waiting int      // the number of all waiters, also if not in Waiters
	Fence   uint64   // at least as large as each fence granted on this name; zero: unknown, only from InspectAll

	// Foreign is set if the lock's key holds a value not written by dibs. Otherwise it is nil. A
	// string value is the Token of the only Holder, and dibs waits until the key is gone, even if
	// Foreign.Lock is false. In Redisson mode this applies to an RLock. For a value in another form,
	// Inspect returns a WrongTypeError.
	Foreign *Foreign

	// Nodes contains the state on each node of a quorum, in the order of the nodes. Other stores
	// leave it empty.
	Nodes []NodeState

	// Err is set only by InspectAll: the store's user may not read this name. Then all other fields
	// except Name are zero.
	Err error
}

// A NodeState is a name's state on a quorum's node, or the reason why it is unknown.
type NodeState struct {
	State State
	Err   error
}

// A Kind is the type of lock behind a lease or a request, such as a mutex or a semaphore. It is
// empty if unknown: the application chose the token, or another library made the lock.
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

// A Holder is a lease on a name, or another library's lock.
type Holder struct {
	Token     string
	Label     string        // the token's label, from the option Label; may be empty
	Kind      Kind          // empty if unknown
	Owner     string        // the owner of another library's lock, in that library's form, without secrets; may be empty
	Weight    int           // how much of Limit the holder uses; zero: exclusive
	Limit     int           // the largest allowed sum of weights; zero if unknown
	Fence     uint64        // zero if the store did not record it
	Since     time.Time     // when it was acquired, by any clock; zero: unknown, or Fence says it in µs since 1970
	Remaining time.Duration // until it expires; negative: never, only for another library's lock
	Reserved  bool          // the lease was released, but the name stays unavailable for Remaining; no renewal extends this time
}

// Exclusive reports whether the holder excludes all others.
func (h Holder) Exclusive() bool { return h.Weight == 0 }

// NeverExpires reports whether the holder stays without a time limit.
func (h Holder) NeverExpires() bool { return h.Remaining < 0 }

// A Waiter is a request in a name's wait queue.
type Waiter struct {
	Token  string
	Label  string        // the token's label, from the option Label; may be empty
	Kind   Kind          // empty if unknown
	Weight int           // how much the request takes from Limit; equal to Limit: exclusive
	Limit  int           // the largest allowed sum of weights
	Waited time.Duration // since the request joined the wait queue
}

// Exclusive reports whether the waiter excludes all other holders. It returns false if the weight
// is unknown.
func (w Waiter) Exclusive() bool { return w.Weight > 0 && w.Weight == w.Limit }
