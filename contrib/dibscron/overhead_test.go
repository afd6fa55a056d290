package dibscron_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibscron"
	"github.com/dibslock/dibs/memstore"
	"github.com/robfig/cron/v3"
)

// BenchmarkOverhead measures a job's run, as cron.Cron starts it: the bare job, and the job under a
// lock. A run reserves its name, so each run uses a job with its own name, made before.
func BenchmarkOverhead(b *testing.B) {
	ran := 0
	b.Run("bare", func(b *testing.B) {
		measureRuns(b, func(string) cron.Job { return cron.FuncJob(func() { ran++ }) })
	})
	b.Run("dibs", func(b *testing.B) {
		locks := dibs.New(memstore.New())
		defer locks.Close()
		locker := dibscron.NewLocker(b.Context(), locks, cron.DiscardLogger)
		measureRuns(b, func(name string) cron.Job {
			return locker.Job(name, 10*time.Millisecond, func(context.Context) error {
				ran++
				return nil
			})
		})
	})
	if ran == 0 {
		b.Error("no job ran")
	}
}

func measureRuns(b *testing.B, job func(name string) cron.Job) {
	jobs := make([]cron.Job, b.N)
	for i := range jobs {
		jobs[i] = job(fmt.Sprint("report-", i))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, j := range jobs {
		j.Run()
	}
}
