package acquire

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/bootclock"
	"github.com/dibslock/dibs/internal/answer"
	"github.com/dibslock/dibs/internal/load"
	"github.com/dibslock/dibs/internal/work"
)

// A Sender sends a client's requests, as often as useful and as fast as the store answers. It is
// safe for concurrent use.
type Sender struct {
	Clock *bootclock.Clock
	Gate  *load.Gate // for requests that need not be sent at once
	trip  load.RoundTrip
}

// An Attempt is a single request in an operation.
type Attempt struct {
	Sent  time.Duration // on the client's clock
	Until time.Time     // when the request must have been answered
}

// Retry makes attempts until an attempt's outcome is known, until end, or until ctx ends. It
// returns the last error. A hanging attempt leaves time for another attempt on another connection.
// The first attempt is sent at once, the others when the budget permits.
func (s *Sender) Retry(ctx context.Context, end time.Time, do func(Attempt) error) error {
	err := s.try(ctx, s.trip.AttemptDeadline(time.Now(), end), do)
	for n := 0; ; n++ {
		if answer.IsKnown(err) || ctx.Err() != nil || !time.Now().Before(end) {
			return err
		}
		// An attempt with almost no time left would report only its own timeout and hide
		// the cause.
		if d := backoff(n); time.Until(end) <= 2*d || !work.Pause(ctx, d) || !time.Now().Before(end) {
			return err
		}
		again := s.tryInTurn(ctx, end, load.Retry, do)
		if errors.Is(again, errNoRoom) {
			return err
		}
		err = again
	}
}

// sendHeartbeat repeats an answered request when the budget permits: a waiter's heartbeat. It makes
// a single attempt, because a waiter repeats it in any case.
func (s *Sender) sendHeartbeat(ctx context.Context, end time.Time, do func(Attempt) error) error {
	return s.tryInTurn(ctx, end, load.Waiter, do)
}

// try makes an attempt.
func (s *Sender) try(ctx context.Context, until time.Time, do func(Attempt) error) error {
	t := Attempt{Sent: s.Clock.Check(), Until: until}
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		t.Until = deadline
	}
	err := do(t)
	if err == nil || !time.Now().Before(t.Until) {
		s.trip.Observe(s.Clock.Now() - t.Sent)
	}
	return err
}

// errNoRoom is the error for an attempt that got no room before its end.
var errNoRoom = &driver.UnavailableError{Op: "send", Unsent: true, Cause: errors.New("not sent in time: the store answers slowly")}

// tryInTurn makes an attempt when the budget permits. A repeated attempt leaves time for another.
func (s *Sender) tryInTurn(ctx context.Context, end time.Time, kind load.Kind, do func(Attempt) error) error {
	const short = 100 * time.Millisecond
	begin := time.Now()
	within, cancel := context.WithDeadline(ctx, end)
	on, err := s.Gate.Wait(within, kind)
	cancel()
	if err != nil {
		return errNoRoom
	}
	if left := time.Until(end); left < min(short, time.Since(begin)) { // the answer would be late, though the store is at work
		s.Gate.End(&on, load.Dropped)
		return errNoRoom
	}
	until := end
	if kind == load.Retry {
		until = s.trip.AttemptDeadline(time.Now(), end)
	}
	err = s.try(ctx, until, do)
	s.Gate.End(&on, answer.ForBudget(ctx, err, until))
	return err
}

// backoff is the pause after the try-th failure: 1, 2, 4 … 64 ms.
func backoff(try int) time.Duration { return time.Millisecond << min(try, 6) }
