package dibs

import "github.com/dibslock/dibs/driver"

// Errors that stores return.
var (
	// ErrInvalid means that the request can never succeed. Nothing was sent.
	ErrInvalid = driver.ErrInvalid
	// ErrWrongType means that the key holds a value that is not a lock.
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
// in time, or rejected the request. errors.Is finds ErrUnavailable and the cause in it.
type UnavailableError = driver.UnavailableError

// A State is the state of one name in the store: its holders and its waiters.
type State = driver.State

// A Holder is one holder of a name, in a State.
type Holder = driver.Holder

// A Waiter is one waiter for a name, in a State.
type Waiter = driver.Waiter
