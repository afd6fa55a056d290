package dibs

import (
	"context"
	"errors"
	"time"
)

// An attempt is one of the requests of an operation.
type attempt struct {
	sent  time.Duration // in the time of the client's clock
	until time.Time     // when the request must have been answered
}

// retry makes attempts until one has an outcome, until end, or until ctx ends. It returns
// the last error. An attempt that hangs leaves time for another one, on another
// connection.
func (c *Client) retry(ctx context.Context, end time.Time, do func(attempt) error) error {
	for try := 0; ; try++ {
		a := attempt{sent: c.clock.check(), until: c.rtt.attemptDeadline(end)}
		if deadline, ok := ctx.Deadline(); ok && deadline.Before(a.until) {
			a.until = deadline
		}
		err := do(a)
		if err == nil || !time.Now().Before(a.until) {
			c.rtt.observe(c.clock.now() - a.sent)
		}
		if hasOutcome(err) || ctx.Err() != nil || !time.Now().Before(end) {
			return err
		}
		// An attempt with almost no time left would report only its own timeout and hide
		// the cause.
		if d := backoff(try); time.Until(end) <= 2*d || !pause(ctx, d) || !time.Now().Before(end) {
			return err
		}
	}
}

// hasOutcome reports whether the store has answered a request, so that another attempt is
// useless.
func hasOutcome(err error) bool {
	return err == nil || errors.Is(err, ErrLost) || refused(err) || permanent(err)
}

// unsent reports whether a request was not sent, so that it cannot arrive any more.
func unsent(err error) bool {
	var e *UnavailableError
	return errors.As(err, &e) && e.Unsent
}

// unsentHere reports whether a request was not sent for a reason in this process, such as a
// full pool of connections. It says nothing about the store.
func unsentHere(err error) bool {
	var e *UnavailableError
	return errors.As(err, &e) && e.Unsent && !e.Unreached
}

// backoff is the pause after the try-th failure: 1, 2, 4 … 64 ms.
func backoff(try int) time.Duration { return time.Millisecond << min(try, 6) }

// pause sleeps for d, or returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
