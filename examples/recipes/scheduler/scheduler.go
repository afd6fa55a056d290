// Package scheduler lets one of many replicas run the asynq scheduler. Its code is in
// docs/recipes/asynq-scheduler.md.
package scheduler

import (
	"context"

	"github.com/dibslock/dibs"
	"github.com/hibiken/asynq"
)

// Schedule runs a scheduler in one of all replicas that call it, until ctx ends. It calls create at
// the start of each term.
func Schedule(ctx context.Context, locks *dibs.Client, create func() (*asynq.Scheduler, error)) error {
	return locks.Election("asynq:scheduler").Run(ctx, func(ctx context.Context) error {
		scheduler, err := create() // a scheduler cannot be started twice, so each term has its own
		if err != nil {
			return err
		}
		if err := scheduler.Start(); err != nil { // not Run, which waits for a signal and not for ctx
			return err
		}
		<-ctx.Done()
		scheduler.Shutdown() // returns when no task is being enqueued; then the term is released
		return nil
	})
}

// NewScheduler returns a scheduler that enqueues a report at the times in a cron specification,
// such as "0 * * * *". It calls enqueued after each attempt.
func NewScheduler(server asynq.RedisConnOpt, spec string, enqueued func(*asynq.TaskInfo, error)) (*asynq.Scheduler, error) {
	scheduler := asynq.NewScheduler(server, &asynq.SchedulerOpts{
		LogLevel:        asynq.WarnLevel,
		PostEnqueueFunc: enqueued, // without it asynq discards a failed attempt's error
	})
	_, err := scheduler.Register(spec, asynq.NewTask("report", nil))
	return scheduler, err
}
