package dibscron_test

import (
	"context"
	"fmt"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibscron"
	"github.com/dibslock/dibs/memstore"
	"github.com/robfig/cron/v3"
)

// Two instances of a program have the same job. Only one runs it.
func Example() {
	store := memstore.New() // goredisstore.New(rdb) in production
	ctx := context.Background()
	outcome := make(chan string, 2)

	instance := func(locks *dibs.Client) *cron.Cron {
		locker := dibscron.NewLocker(ctx, locks, skips(outcome))                         // in production with the program's logger
		report := locker.Job("report", 30*time.Second, func(ctx context.Context) error { // ctx ends if the lock is lost
			fence, err := dibs.Fence(ctx)
			outcome <- fmt.Sprint("report ran with a fence: ", fence > 0)
			return err
		})
		schedule := cron.New(cron.WithSeconds())
		if _, err := schedule.AddJob("0/2 * * * * *", report); err != nil {
			panic(err)
		}
		schedule.Start()
		return schedule
	}

	for range 2 {
		locks := dibs.New(store)
		defer locks.Close()
		defer instance(locks).Stop()
	}
	fmt.Println(<-outcome)
	fmt.Println(<-outcome)
	// Unordered output:
	// report ran with a fence: true
	// report was skipped
}

// skips is a cron.Logger that sends a line for each skipped run.
type skips chan string

func (s skips) Info(message string, values ...any) {
	if message == "job skipped" {
		s <- fmt.Sprint(values[1], " was skipped")
	}
}

func (s skips) Error(err error, message string, _ ...any) { s <- fmt.Sprint(message, ": ", err) }

// An existing job is wrapped. A chain can have other wrappers.
func ExampleLocker_Wrapper() {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	locker := dibscron.NewLocker(context.Background(), locks, nil)
	cleanup := cron.FuncJob(func() { fmt.Println("cleaning") })

	job := cron.NewChain(cron.Recover(cron.DefaultLogger), locker.Wrapper("cleanup", 30*time.Minute)).Then(cleanup)
	job.Run() // as cron.Cron does
	job.Run() // reserved for 30 minutes
	// Output: cleaning
}
