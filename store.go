package dibs

import "github.com/dibslock/dibs/driver"

// Errors from stores.
var (
	// ErrInvalid means that the request can never succeed. Nothing was sent.
	ErrInvalid = driver.ErrInvalid
	// ErrWrongType means that the key holds a value other than a dibs lock. It is wrapped in a
	// *WrongTypeError, which describes the value.
	ErrWrongType = driver.ErrWrongType
	// ErrLost means that the lease ended before it was released. It is wrapped in a *LostError with
	// the reason.
	ErrLost = driver.ErrLost
	// ErrUnavailable means that the store could not be reached, did not answer in time, or rejected
	// the request. It is wrapped in an *UnavailableError with the cause.
	ErrUnavailable = driver.ErrUnavailable
)
