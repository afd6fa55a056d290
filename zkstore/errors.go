package zkstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/dibslock/dibs/driver"
	"github.com/go-zookeeper/zk"
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{driver.ErrInvalid}, args...)...)
}

var (
	errNoServers = invalid("zkstore.New: no server, or the Store was not made by New")

	// errLate means that a request came after its time limit.
	errLate = errors.New("the request came after its time limit")

	// errAgain means that an entry changed during a request, so the request should read it again.
	errAgain = errors.New("the queue changed each time")

	// errEnded means that a session ended, and its entries with it.
	errEnded = errors.New("the session in ZooKeeper ended")

	// errEnding means that the end of an entry was requested, but not answered.
	errEnding = errors.New("an earlier request to end the lease got no answer")
)

// An unsentError is the reason why a request was not sent.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// refusals are the answers to requests that changed nothing.
var refusals = []error{
	zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrAuthFailed, zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadArguments,
	zk.ErrBadVersion, zk.ErrNoChildrenForEphemerals, zk.ErrNotEmpty, zk.ErrInvalidPath,
}

// unavailable returns an operation's error.
func unavailable(op, name string, err error) error {
	if errors.Is(err, driver.ErrInvalid) {
		return err
	}
	e := &driver.UnavailableError{Op: op, Name: name, Cause: err}
	var unsent unsentError
	var other *driver.WrongTypeError
	switch {
	case errors.As(err, &other):
		other.Op, other.Name, other.State.Name = op, name, name
		return other
	case errors.As(err, &unsent):
		e.Unsent, e.Unreached = true, !errors.Is(err, context.Canceled)
	case errors.Is(err, zk.ErrNoAuth):
		e.Cause, e.Refused = fmt.Errorf("%w: the user needs the rights c, d, r and w below the store's prefix", err), true
	case isRefusal(err) || errors.Is(err, errNoNumbers):
		e.Refused = true
	}
	return e
}

func isRefusal(err error) bool {
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// isBroken reports whether a connection ended before an answer, so the outcome is unknown.
func isBroken(err error) bool {
	for _, broken := range []error{zk.ErrConnectionClosed, zk.ErrClosing, zk.ErrSessionMoved, zk.ErrNoServer, net.ErrClosed, io.EOF, os.ErrDeadlineExceeded} {
		if errors.Is(err, broken) {
			return true
		}
	}
	var network net.Error // of a write, from the library
	return errors.As(err, &network) && !errors.Is(err, context.DeadlineExceeded)
}

// again repeats a request while it returns errAgain.
func again[R any](do func() (R, error)) (reply R, err error) {
	const attempts = 100
	for range attempts {
		if reply, err = do(); !errors.Is(err, errAgain) {
			break
		}
	}
	return reply, err
}
