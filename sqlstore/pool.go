package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Pool is the user's connection pool. It counts the connections used by the store. So an error
// can say whether other work uses all connections. It is safe for concurrent use.
type Pool struct {
	stats   func() (used, size int)
	setting string
	own     atomic.Int64
}

// NewPool returns a Pool. stats returns the number of connections in use or being opened, and the
// largest number, which is zero without a limit. setting names the setting for this limit.
func NewPool(setting string, stats func() (used, size int)) *Pool {
	return &Pool{stats: stats, setting: setting}
}

// IsFull reports whether all connections are in use.
func (p *Pool) IsFull() bool {
	used, size := p.stats()
	return size > 0 && used >= size
}

// Use takes a connection from the pool, calls do with it, and returns it. If no connection is
// available, the error is an *UnsentError.
func Use[C any](p *Pool, take func() (C, error), give func(C), do func(C) error) error {
	waits := p.IsFull() // otherwise the call has a connection from now on, idle or new
	if !waits {
		p.own.Add(1)
	}
	conn, err := take()
	if err != nil {
		if !waits {
			p.own.Add(-1)
		}
		return p.explain(waits, err)
	}
	if waits {
		p.own.Add(1)
	}
	defer func() {
		give(conn)
		p.own.Add(-1)
	}()
	return do(conn)
}

// explain returns the error for a call without a connection, which may have waited for a
// connection.
func (p *Pool) explain(waits bool, err error) error {
	own := int(p.own.Load())
	_, size := p.stats()
	timedOut := err == context.DeadlineExceeded  //nolint:errorlint // a network error, which may match, says more
	ended := timedOut || err == context.Canceled //nolint:errorlint // the same
	switch {
	case ended && waits && own < size && p.IsFull():
		return &UnsentError{local: true, cause: fmt.Errorf(
			"not sent: no connection was free in the pool of the client (%d, of which dibs uses %d): use a larger pool (%s), or fewer connections for other work: %w",
			size, own, p.setting, err)}
	case timedOut && waits && p.IsFull():
		return InFront(err)
	case timedOut:
		return &UnsentError{cause: fmt.Errorf("not sent: no connection was ready in time: %w", err)}
	}
	return &UnsentError{cause: err}
}

// An UnsentError is the reason why a request was not sent: there was no connection for it.
type UnsentError struct {
	cause error
	local bool // it says nothing about the server
}

// WaitedTooLong reports whether a request waited for its turn since begin, so less than half its
// time is left. Such a request is not sent: its answer would be late, although the server works.
func WaitedTooLong(ctx context.Context, begin time.Time) bool {
	end, limited := ctx.Deadline()
	return limited && time.Until(end) < time.Since(begin)
}

// InFront returns the error for a request that ended while this process's other requests were in
// front.
func InFront(err error) error {
	return &UnsentError{local: true, cause: fmt.Errorf("not sent: others were in front: %w", err)}
}

// Unsent returns an *UnsentError with this cause.
func Unsent(cause error) *UnsentError { return &UnsentError{cause: cause} }

func (e *UnsentError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *UnsentError) Unwrap() error { return e.cause }

// Unavailable returns an operation's error. explained is err, or a text that says more.
func Unavailable(op, name string, err, explained error, refused bool) error {
	u := &driver.UnavailableError{Op: op, Name: name, Cause: explained, Refused: refused}
	var unsent *UnsentError
	if errors.As(err, &unsent) {
		u.Unsent, u.Unreached = true, !unsent.local
	}
	return u
}
