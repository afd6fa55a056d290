package dibs

import "github.com/dibslock/dibs/driver"

// Errors that stores return.
var (
	// ErrInvalid means that the request can never succeed. Nothing was sent.
	ErrInvalid = driver.ErrInvalid
	// ErrWrongType means that the key holds a value that is not a lock of dibs. It is
	// wrapped in a *WrongTypeError, which describes the value.
	ErrWrongType = driver.ErrWrongType
	// ErrLost means that the lease ended before it was released. It is wrapped in a
	// *LostError, which has the reason.
	ErrLost = driver.ErrLost
	// ErrUnavailable means that the store could not be reached, did not answer in time,
	// or rejected the request. It is wrapped in an *UnavailableError, which has the
	// cause.
	ErrUnavailable = driver.ErrUnavailable
)

// An UnavailableError is the error of a store that could not be reached, did not answer
// in time, or rejected the request. errors.Is finds ErrUnavailable and the cause in it. Its
// fields are
//
//	Op        string // acquire, release, extend, …
//	Name      string // empty if the operation concerns several names
//	Cause     error
//	Refused   bool // the store answered and did nothing: the outcome is known
//	Unsent    bool // nothing was sent: the outcome is known, and a retry may succeed
//	Unreached bool // with Unsent: the store had no connection for the request, and may be away
//	Unknown   bool // set by Unlock: the name may or may not be free; dibs retries in the background
type UnavailableError = driver.UnavailableError

// A WrongTypeError is the error of a key that holds a value of another type than a lock of
// dibs: a lock of another library, or data. errors.Is finds ErrWrongType in it. Its fields
// are
//
//	Op    string // acquire, release, extend, …
//	Name  string
//	State State  // Foreign describes the value, if the store could read it; Holders are the owners of a foreign lock
//	Cause error  // the server's reply
type WrongTypeError = driver.WrongTypeError

// A State is the state of one name in the store. Its fields are
//
//	Name    string
//	Holders []Holder // at most 100, those that expire first
//	Holding int      // the number of all holders
//	Waiters []Waiter // the first 100, in the order of service
//	Waiting int      // the number of all waiters
//	Fence   uint64   // no fence granted on this name is larger
//	Foreign *Foreign // set if the lock key holds something that dibs did not write
//	Nodes   []NodeState // of a quorum: the state on each node, or why it is not known
type State = driver.State

// A Foreign describes a value at the key of a lock that dibs did not write: the lock of
// another library, or data. Its fields are
//
//	Key       string        // the whole key
//	Type      string        // its type, as the server names it
//	Kind      string        // what it looks like: "Redisson RLock", "counter"
//	Remaining time.Duration // until the key expires; negative: never
//	Lock      bool          // it is recognised as a lock
//	Advice    string        // what an operator can do
//	Mark      any           // for the store; nil if dibs unlock --force does not end it: see Removable
type Foreign = driver.Foreign

// A Holder is one holder of a name, in a State. Its fields are
//
//	Token     string
//	Label     string
//	Kind      Kind          // empty if not known, as for a token of the application
//	Owner     string        // of a foreign lock: its owner as its library writes it; may be empty
//	Weight    int           // zero: exclusive, as a mutex, a writer, or all permits of a semaphore
//	Limit     int           // how much may be held together; zero if not known
//	Fence     uint64        // zero if the store does not have it: see Client.Revoke
//	Remaining time.Duration // negative: it never expires, so the lock is a foreign one
//	Reserved  bool          // released, but MinHold or Once keeps the name unavailable
type Holder = driver.Holder

// A Waiter is one waiter for a name, in a State. Its fields are
//
//	Token  string
//	Label  string
//	Kind   Kind // empty if not known
//	Weight int  // how much of Limit it wants; equal to it: exclusive
//	Limit  int
//	Waited time.Duration
type Waiter = driver.Waiter
