// Package dibsgocron lets a program's instances share the jobs in github.com/go-co-op/gocron/v2, so
// that each due run happens on a single instance.
//
//	locker := dibsgocron.NewLocker(locks, 30*time.Second)
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//	…
//	_, err = scheduler.NewJob(gocron.CronJob("*/5 * * * *", false),
//		locker.Task(func(ctx context.Context) error { return report(ctx) }),
//		gocron.WithName("report"))
//
// A [Locker] acquires a lock for each run: the jobs are spread over the instances, and each due run
// happens exactly once within a stated bound. An [Elector] makes an instance the leader, which runs
// all jobs. gocron uses either: with an Elector it asks no Locker. docs/schedulers.md compares
// them.
//
// gocron gives a job no context for the lock. The tasks from [Locker.Task] and [Elector.Task]
// receive such a context: it ends when the lock is lost, and carries its fence.
//
// Tested with v2.17.0 to v2.22.0 of github.com/go-co-op/gocron/v2.
package dibsgocron
