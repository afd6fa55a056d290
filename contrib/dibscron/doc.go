// Package dibscron lets a program's instances share the jobs in github.com/robfig/cron/v3, so that
// each due run happens on a single instance.
//
//	locker := dibscron.NewLocker(ctx, locks, logger)
//	schedule := cron.New(cron.WithLogger(logger))
//	_, err := schedule.AddJob("0 * * * *", locker.Job("report", 30*time.Minute,
//		func(ctx context.Context) error { return report(ctx) }))
//
// [Locker.Job] is for functions with a context and an error. [Locker.Wrapper] is for existing jobs.
//
// Tested with v3.0.1 of github.com/robfig/cron/v3.
package dibscron
