package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dibslock/dibs/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{driver.ErrInvalid}, args...)...)
}

var errNoClient = invalid("etcdstore.New: the *clientv3.Client is nil, or the Store was not made by New")

// unknownOutcomes are replies after which etcd may have done the request.
var unknownOutcomes = []error{
	rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost,
	rpctypes.ErrTimeoutWaitAppliedIndex, rpctypes.ErrStopped, rpctypes.ErrNoLeader, rpctypes.ErrNotLeader, rpctypes.ErrLeaderChanged,
}

// unavailable returns an operation's error.
func unavailable(op, name string, err error) error {
	if errors.Is(err, driver.ErrInvalid) {
		return err
	}
	e := &driver.UnavailableError{Op: op, Name: name, Cause: err}
	var reply rpctypes.EtcdError
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
	case clientv3.IsConnCanceled(err):
		e.Cause = fmt.Errorf("%w: %w", driver.ErrDisconnected, err) // the request may have been on its way
	case !errors.As(err, &reply) || reply.Code() == codes.Unavailable || slices.Contains(unknownOutcomes, error(reply)):
	case errors.Is(err, rpctypes.ErrNoSpace):
		e.Cause, e.Refused = fmt.Errorf("%w: compact, defragment, and disarm the alarm, or raise --quota-backend-bytes", err), true
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		e.Cause, e.Refused = fmt.Errorf("%w: the user needs a role with readwrite on the store's prefix", err), true
	default:
		e.Refused = true
	}
	return e
}

// hasNoEffect reports whether a request that failed changed nothing.
func hasNoEffect(err error) bool {
	if errors.Is(err, driver.ErrInvalid) {
		return true
	}
	var e *driver.UnavailableError
	return errors.As(unavailable("", "", err), &e) && (e.Refused || e.Unsent)
}
