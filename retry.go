package dibs

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/internal/load"
)

// An attempt is one of the requests of an operation.
type attempt struct {
	sent  time.Duration // in the time of the client's clock
	until time.Time     // when the request must have been answered
}

// retry makes attempts until one has an outcome, until end, or until ctx ends. It returns
// the last error. An attempt that hangs leaves time for another one, on another
// connection. The first attempt is sent at once, the others when the budget has room.
func (c *Client) retry(ctx context.Context, end time.Time, do func(attempt) error) error {
	err := c.try(ctx, c.rtt.AttemptDeadline(time.Now(), end), do)
	for n := 0; ; n++ {
		if hasOutcome(err) || ctx.Err() != nil || !time.Now().Before(end) {
			return err
		}
		// An attempt with almost no time left would report only its own timeout and hide
		// the cause.
		if d := backoff(n); time.Until(end) <= 2*d || !pause(ctx, d) || !time.Now().Before(end) {
			return err
		}
		again := c.tryInTurn(ctx, end, load.Retry, do)
		if errors.Is(again, errNoRoom) {
			return err
		}
		err = again
	}
}

// repeat sends an answered request once more, when the budget has room: the heartbeat of a waiter.
// It makes one attempt, because a waiter repeats it in any case.
func (c *Client) repeat(ctx context.Context, end time.Time, do func(attempt) error) error {
	return c.tryInTurn(ctx, end, load.Waiter, do)
}

// try makes one attempt.
func (c *Client) try(ctx context.Context, until time.Time, do func(attempt) error) error {
	a := attempt{sent: c.clock.Check(), until: until}
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		a.until = deadline
	}
	err := do(a)
	if err == nil || !time.Now().Before(a.until) {
		c.rtt.Observe(c.clock.Now() - a.sent)
	}
	return err
}

// errNoRoom is the error of an attempt for which there was no room until its end.
var errNoRoom = &UnavailableError{Op: "send", Unsent: true, Cause: errors.New("not sent in time: the store answers slowly")}

// tryInTurn makes one attempt when the budget has room for it. One that is repeated leaves time for
// another one.
func (c *Client) tryInTurn(ctx context.Context, end time.Time, kind load.Kind, do func(attempt) error) error {
	const short = 100 * time.Millisecond
	begin := time.Now()
	within, cancel := context.WithDeadline(ctx, end)
	on, err := c.gate.Wait(within, kind)
	cancel()
	if err != nil {
		return errNoRoom
	}
	if left := time.Until(end); left < min(short, time.Since(begin)) { // the answer would be late, though the store is at work
		c.gate.End(&on, load.Dropped)
		return errNoRoom
	}
	until := end
	if kind == load.Retry {
		until = c.rtt.AttemptDeadline(time.Now(), end)
	}
	err = c.try(ctx, until, do)
	c.gate.End(&on, outcomeOf(ctx, err, until))
	return err
}

// outcomeOf returns what came of a request that had to be answered until then, for the budget.
func outcomeOf(ctx context.Context, err error, until time.Time) load.Outcome {
	switch {
	case !errors.Is(err, ErrUnavailable) || refused(err):
		return load.Answered
	case unsent(err) || ctx.Err() != nil:
		return load.Dropped
	case time.Now().Before(until):
		return load.Failed
	}
	return load.Unanswered
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
