package dibscron

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs"
	"github.com/robfig/cron/v3"
)

// A Locker makes jobs for many instances, and a single instance runs a job at each due time. It is
// safe for concurrent use.
type Locker struct {
	ctx    context.Context
	locks  *dibs.Client
	logger cron.Logger
}

// NewLocker returns a Locker. All runs' contexts end with ctx. This does not stop the schedule:
// before you close the client, call cron.Cron.Stop, and wait for its context.
//
// At Info level, the logger receives the skipped runs, with the process that runs them. At
// Error level it receives the errors from jobs and locks. Nil means cron.DefaultLogger.
func NewLocker(ctx context.Context, locks *dibs.Client, logger cron.Logger) *Locker {
	if logger == nil {
		logger = cron.DefaultLogger
	}
	return &Locker{ctx: ctx, locks: locks, logger: logger}
}

// Job returns a job that runs fn unless another instance has the run. The job's lock has the job's
// name. The name stays unavailable for minHold after a run starts, even if the run takes 1 ms. Late
// instances find it reserved, and do not run the job again.
//
// The interval is the time between two due times. The spread is how far apart the instances request
// the lock for the same due time. It adds up the differences between their clocks, late timers, and
// slow requests. A request takes at most the operation timeout. Each due run happens exactly once
// if minHold is longer than the spread, and shorter than the interval minus the spread. Half the
// interval tolerates the largest spread. minHold is 10 ms to 366 days.
//
// The instances' due times must be the same. With "@every 5m" they begin when an instance
// starts: use "*/5 * * * *".
//
// After a crash the name stays unavailable for minHold, or for the TTL if that is longer. With
// a TTL of at most minHold, the next due run takes place. A run longer than the interval
// keeps its lock. Due times during the run are skipped.
//
// fn's context ends when the lock is lost, with cause dibs.ErrLost. It also ends with the Locker's
// context. dibs.Fence returns the lock's fence for it. The options are the same as for
// [dibs.Client.Once].
func (l *Locker) Job(name string, minHold time.Duration, fn func(ctx context.Context) error, options ...dibs.Option) cron.Job {
	once := l.locks.Once(name, minHold, options...)
	return cron.FuncJob(func() {
		err := once.Do(l.ctx, fn)
		var do *dibs.DoError
		switch {
		case err == nil:
		case errors.As(err, &do) && do.Ran: // first: the job may return the ErrSkipped of another one
			l.logger.Error(err, "job failed", "name", name)
		case errors.Is(err, dibs.ErrSkipped):
			l.logger.Info("job skipped", "name", name, "reason", err)
		default:
			l.logger.Error(err, "job did not run", "name", name)
		}
	})
}

// Wrapper returns a wrapper for a single existing job. The arguments are the same as for Job. The
// wrapped job receives no context, so it does not end when the lock is lost. The loss is logged
// when the job returns.
//
//	job := cron.NewChain(cron.Recover(logger), locker.Wrapper("cleanup", time.Hour)).Then(cleanup)
//
// A second job in the same wrapper never runs, because the first job has the lock; it only logs
// dibs.ErrInvalid. The function cron.WithChain wraps all jobs in a cron.Cron, so use it only for a
// single job.
func (l *Locker) Wrapper(name string, minHold time.Duration, options ...dibs.Option) cron.JobWrapper {
	var used atomic.Bool
	return func(job cron.Job) cron.Job {
		if used.Swap(true) {
			return cron.FuncJob(func() {
				l.logger.Error(fmt.Errorf("%w: the wrapper of %q has another job: make a wrapper with its own name for each job", dibs.ErrInvalid, name), "job did not run", "name", name)
			})
		}
		return l.Job(name, minHold, func(context.Context) error {
			job.Run()
			return nil
		}, options...)
	}
}
