package redisstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

func TestWrapError(t *testing.T) {
	for _, c := range []struct {
		err            error
		kind           error
		refused, other bool
	}{
		{redisconn.ServerError("WRONGTYPE Operation against a key"), dibs.ErrWrongType, false, true},
		{redisconn.ServerError("ERR user_script:1: WRONGTYPE Operation against a key"), dibs.ErrWrongType, false, true},
		{redisconn.ServerError("READONLY You can't write against a read only replica."), dibs.ErrUnavailable, false, false},
		{redisconn.ServerError("ERR Error running script: @user_script: 9: -READONLY You can't write against a read only replica."), dibs.ErrUnavailable, false, false},
		{redisconn.ServerError("ERR READONLY You can't write against a read only replica. script: c1ce88, on @user_script:58."), dibs.ErrUnavailable, false, false},
		{redisconn.ServerError("MOVED 3999 127.0.0.1:6381"), dibs.ErrUnavailable, false, false},
		{redisconn.ServerError("NOPERM this user has no permissions"), dibs.ErrUnavailable, true, false},
		{redisconn.ServerError("OOM command not allowed"), dibs.ErrUnavailable, true, false},
		{redisconn.ServerError("LOADING Redis is loading the dataset in memory"), dibs.ErrUnavailable, false, false},
		{redisconn.ServerError("BUSY Redis is busy running a script"), dibs.ErrUnavailable, false, false},
		{errors.New("connection reset"), dibs.ErrUnavailable, false, false},
		{fmt.Errorf("adapter: %w", redisconn.ErrClosed), dibs.ErrUnavailable, true, false},
		{fmt.Errorf("wrapped: %w", redisconn.ServerError("NOAUTH")), dibs.ErrUnavailable, true, false},
	} {
		err := wrapError("op", "n", c.err)
		if !errors.Is(err, c.kind) || !errors.Is(err, c.err) {
			t.Errorf("%v becomes %v, want %v", c.err, err, c.kind)
		}
		var unavailable *driver.UnavailableError
		if is := errors.As(err, &unavailable); is == c.other || is && unavailable.Refused != c.refused {
			t.Errorf("%v becomes %+v, want refused %v", c.err, unavailable, c.refused)
		}
	}
}

// The error for several requests should say that nothing was sent only if this is true for each
// request.
func TestWorstOfSeveralRequests(t *testing.T) {
	unsent, sent := error(&driver.UnavailableError{Unsent: true}), error(&driver.UnavailableError{})
	for _, c := range []struct {
		errs []error
		want error
	}{
		{[]error{nil, nil}, nil}, {[]error{unsent, nil}, unsent}, {[]error{unsent, sent, unsent}, sent}, {[]error{sent, unsent}, sent},
	} {
		if have := worstOf(c.errs); have != c.want { //nolint:errorlint // identity
			t.Errorf("%v: have %v, want %v", c.errs, have, c.want)
		}
	}
}
