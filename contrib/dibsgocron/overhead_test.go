package dibsgocron_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgocron"
	"github.com/dibslock/dibs/memstore"
	"github.com/go-co-op/gocron/v2"
)

// BenchmarkOverhead measures a job that gocron runs once: without a lock, under a Locker's lock,
// and on an Elector's leader. A run reserves its name, so each job has its own name.
func BenchmarkOverhead(b *testing.B) {
	plain := func(fn func(ctx context.Context) error) gocron.Task { return gocron.NewTask(fn) }
	b.Run("bare", func(b *testing.B) { measureJobs(b, plain) })
	b.Run("dibs", func(b *testing.B) {
		locks := dibs.New(memstore.New())
		defer locks.Close()
		locker := dibsgocron.NewLocker(locks, 10*time.Millisecond)
		measureJobs(b, locker.Task, gocron.WithDistributedLocker(locker))
	})
	b.Run("elector", func(b *testing.B) {
		locks := dibs.New(memstore.New())
		defer locks.Close()
		elector := dibsgocron.NewElector(locks, "scheduler")
		defer elector.Close()
		for elector.IsLeader(b.Context()) != nil {
			runtime.Gosched()
		}
		measureJobs(b, elector.Task, gocron.WithDistributedElector(elector))
	})
}

func measureJobs(b *testing.B, task func(fn func(ctx context.Context) error) gocron.Task, options ...gocron.SchedulerOption) {
	scheduler, err := gocron.NewScheduler(options...)
	if err != nil {
		b.Fatal(err)
	}
	defer scheduler.Shutdown()
	scheduler.Start()
	ran := make(chan struct{})
	report := task(func(context.Context) error {
		ran <- struct{}{}
		return nil
	})
	now := gocron.OneTimeJob(gocron.OneTimeJobStartImmediately())
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := scheduler.NewJob(now, report, gocron.WithName(fmt.Sprint("report-", i))); err != nil {
			b.Fatal(err)
		}
		<-ran
	}
}
