package dibs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
)

// ErrSkipped means that Once.Do did not run its function, because the job is running, or was run
// within its interval. The error is also a *BusyError, which says who runs the job, or how long its
// name is reserved.
var ErrSkipped = errors.New("dibs: skipped")

// A Once is a periodic job that many processes start by their own clocks. Only one of them runs it,
// at most once per interval. The value holds no state, and is safe for concurrent use.
type Once struct {
	c        *Client
	name     string
	every    time.Duration
	settings settings
}

// Once returns the periodic job with this name. After a run starts, no other run starts for the
// given interval, even if the first run ends early, fails, or its process crashes. Once does no
// I/O. With an invalid name or option, Do returns ErrInvalid.
//
// Once starts nothing by itself: each process should call Do regularly, for example from a ticker
// or a cron library. The interval must be longer than the differences between the processes'
// clocks, and shorter than the time between two runs. For an hourly job it should be 50 minutes:
// with an hour, a run that starts slightly early is skipped. The interval is from 10 ms to 366
// days; on a quorum (several independent servers), at most the quorum's longest TTL.
//
// If a job runs longer than the interval, the Client renews its lease until the job ends. So no
// other run starts before that end. MaxHold limits the run: it ends the job's context. MaxHold must
// not be shorter than the interval. After a crash the name stays unavailable for the rest of the
// interval, or of the TTL if longer.
//
// The interval replaces MinHold: given to Once, MinHold is ErrInvalid, and given to New, it does
// not apply. After a failed run, no other run starts within the interval either, unless
// [RetryFailed] is given.
func (c *Client) Once(name string, every time.Duration, options ...Option) *Once {
	return &Once{c: c, name: name, every: every, settings: c.settings(options).ofOnce()}
}

// Do runs fn unless the job is running, or a run began within the interval. In both cases it does
// not wait: it returns an error for which errors.Is finds ErrSkipped. If fn itself returns
// ErrSkipped, errors.Is also finds it, but DoError.Ran is true. Other errors, and fn's context and
// fence, are those of Mutex.Do.
func (o *Once) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	if fn == nil {
		return errNotRun(o.name, errNoFunc)
	}
	set := o.settings.with(atCall, options)
	lease, err := o.acquire(ctx, set)
	if err != nil {
		return errNotRun(o.name, err)
	}
	work, unlocked := (&carriedLease{lease: lease, retryFailed: set.retryFailed}).run(ctx, fn)
	return errAfterRun(o.name, work, unlocked)
}

// acquire acquires the lease for a run. The interval is its MinHold.
func (o *Once) acquire(ctx context.Context, set settings) (*Lease, error) {
	switch {
	case o.every < driver.MinTTL || o.every > driver.MaxReserve:
		return nil, invalid("interval %v of Once %q: not within %v to %v", o.every, o.name, driver.MinTTL, driver.MaxReserve)
	case set.maxHold >= driver.MinTTL && set.maxHold < o.every:
		return nil, invalid("MaxHold %v of %q: below its interval %v (to limit the job, give its context a deadline)", set.maxHold, o.name, o.every)
	}
	set.minHold = o.every
	lease, err := o.c.acquire(ctx, exclusive(KindOnce, o.name), set.tryOnce())
	var busy *BusyError
	if errors.As(err, &busy) && ctx.Err() == nil {
		return nil, skippedError{o.name, busy}
	}
	return lease, err
}

// A skippedError means that another process has the run.
type skippedError struct {
	name string
	busy *BusyError
}

func (e skippedError) Error() string {
	if e.busy.Holder == "" {
		return fmt.Sprintf("dibs: run of %q skipped: busy", e.name)
	}
	return fmt.Sprintf("dibs: run of %q skipped: %s", e.name, e.busy.heldBy())
}

// Unwrap makes errors.Is and errors.As find ErrSkipped and the BusyError.
func (e skippedError) Unwrap() []error { return []error{ErrSkipped, e.busy} }
