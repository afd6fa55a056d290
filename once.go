package dibs

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Once is a periodic job that many processes start by their own clocks and that one of
// them runs: at most once per interval. The value holds no state, and is safe for
// concurrent use.
type Once struct {
	c        *Client
	name     string
	every    time.Duration
	settings settings
}

// Once returns the periodic job of a name. After a run has started, no other run starts
// for the duration every, even if the first one ends early, fails, or its process
// crashes. Once does no I/O; a bad name or option makes Do return ErrInvalid.
//
// Once starts nothing by itself: each process calls Do by its own clock, such as a ticker
// or a cron library. The interval must be longer than the differences between those clocks,
// and shorter than the time between two runs: for an hourly job, 50 minutes. With exactly
// one hour, a run that starts a little early is skipped. The interval is from 10 ms to 24 h.
//
// A job that runs longer than the interval keeps the name by renewal until it ends.
// MaxHold limits that: it ends the context of the job. MinHold is ErrInvalid, and a MinHold
// given to New does not apply. After a crash the name stays
// unavailable for the rest of the interval, or of the TTL if that is longer.
func (c *Client) Once(name string, every time.Duration, options ...Option) *Once {
	return &Once{c: c, name: name, every: every, settings: c.settings(options).ofOnce()}
}

// Do runs fn unless the job runs now or was run within the interval. It does not wait: if
// another process has the job this time, Do returns false and no error. Otherwise it
// returns true with the error of fn or of the release, or false with an error of the
// acquire, as Mutex.Do. The context and the fence of fn are those of Mutex.Do.
func (o *Once) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) (ran bool, err error) {
	if fn == nil {
		return false, errNoFunc
	}
	if err := checkTTL("interval", o.name, o.every); err != nil {
		return false, err
	}
	set := o.settings.with(atCall, options)
	if set.maxHold >= driver.MinTTL && set.maxHold < o.every {
		return false, invalid("MaxHold %v of %q: below its interval %v", set.maxHold, o.name, o.every)
	}
	set.minHold = o.every
	lease, err := o.c.acquire(ctx, exclusive(KindOnce, o.name), set.tryOnce())
	switch {
	case err == nil:
		return true, lease.run(ctx, fn)
	case errors.Is(err, ErrBusy) && ctx.Err() == nil:
		return false, nil
	}
	return false, err
}
