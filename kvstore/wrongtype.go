package kvstore

import (
	"errors"
	"fmt"

	"github.com/dibslock/dibs/driver"
)

// A wrongType is the error for a key with another program's value. Repeating the request does not
// change it.
type wrongType struct {
	key string
	is  string
	err error
}

const (
	isNoLock = "not a lock"
	isNoMark = "not a fence mark"
)

func (e *wrongType) Error() string {
	return fmt.Sprintf("the value of key %q is %s: %v", e.key, e.is, e.err)
}

func (e *wrongType) Unwrap() error { return e.err }

// wrongTypeState returns a name's state if its key holds another program's value, or false if err
// fails for another reason.
func wrongTypeState(name string, err error) (state driver.State, ok bool) {
	var wrong *wrongType
	if !errors.As(err, &wrong) || wrong.is != isNoLock {
		return driver.State{}, false
	}
	const what = "value" // a bucket has no types
	return driver.State{Name: name, Foreign: &driver.Foreign{
		Key: wrong.key, Type: what, Kind: what, Remaining: -1,
		Advice: "delete it if nobody needs it, or use a bucket for dibs alone",
	}}, true
}
