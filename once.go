package dibs

import (
	"context"
	"errors"
	"time"
)

// A Once is a job that many replicas are told to run, by their own clocks, and that
// one of them is to run: at most once in an interval. It holds no state, and is safe
// for concurrent use.
type Once struct {
	c        *Client
	name     string
	every    time.Duration
	settings settings
}

// Once returns the job of a name. For every, from its start, nobody else runs it:
// whether it ends before, fails, or its process dies. That has to be longer than the
// replicas' clocks and schedules differ, and shorter than the time to the next run;
// from 10 ms to 24 h. It does no I/O; a bad name or option is told by Do.
//
// A job that takes longer keeps the name for as long as it runs, by renewal. MaxHold
// bounds that: the job's context ends then. TTL is what a crash costs beyond the
// interval.
func (c *Client) Once(name string, every time.Duration, options ...Option) *Once {
	return &Once{c: c, name: name, every: every, settings: c.defaults.with(options)}
}

// Do runs fn if nobody has run the job within the interval and nobody runs it now. It
// does not wait: if the job is somebody else's this time, it returns false and no
// error. Its errors are those of Mutex.Do, and fn's. The fn's context and fence are as
// with Mutex.Do.
func (o *Once) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) (ran bool, err error) {
	if fn == nil {
		return false, errNoFunc
	}
	if err := checkTTL(o.name, o.every); err != nil {
		return false, err
	}
	set := o.settings.with(options)
	if set.minHold >= 0 { // else it is refused, below
		set.minHold = max(set.minHold, o.every)
	}
	lease, err := o.c.acquire(ctx, exclusive(o.name), set, tryOnce)
	switch {
	case err == nil:
		return true, lease.run(ctx, fn)
	case errors.Is(err, ErrBusy) && ctx.Err() == nil:
		return false, nil
	}
	return false, err
}
