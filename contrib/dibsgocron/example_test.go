package dibsgocron_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgocron"
	"github.com/dibslock/dibs/memstore"
	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
)

// Two instances of a program have the same job. Only one runs it.
func Example() {
	store := memstore.New() // goredisstore.New(rdb) in production
	due := time.Now().Add(time.Second)
	outcome := make(chan string)

	instance := func(locks *dibs.Client) gocron.Scheduler {
		locker := dibsgocron.NewLocker(locks, 30*time.Second)
		scheduler, err := gocron.NewScheduler(
			gocron.WithDistributedLocker(locker),
			gocron.WithGlobalJobOptions(gocron.WithEventListeners(
				gocron.AfterLockError(func(_ uuid.UUID, job string, err error) {
					if errors.Is(err, dibs.ErrBusy) {
						outcome <- job + " was skipped" // another instance runs it
						return
					}
					outcome <- err.Error() // such as dibs.ErrUnavailable: log it
				}))))
		if err != nil {
			panic(err)
		}
		report := locker.Task(func(ctx context.Context) error { // ctx ends if the lock is lost
			fence, err := dibs.Fence(ctx)
			outcome <- fmt.Sprint("report ran with a fence: ", fence > 0)
			return err
		})
		_, err = scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(due)), report, gocron.WithName("report"))
		if err != nil {
			panic(err)
		}
		scheduler.Start()
		return scheduler
	}

	for range 2 {
		locks := dibs.New(store)
		defer locks.Close()
		defer instance(locks).Shutdown()
	}
	fmt.Println(<-outcome)
	fmt.Println(<-outcome)
	// Unordered output:
	// report ran with a fence: true
	// report was skipped
}

// A single instance is the leader and runs all jobs.
func ExampleElector() {
	locks := dibs.New(memstore.New(), dibs.TTL(10*time.Second))
	defer locks.Close()
	elector := dibsgocron.NewElector(locks, "scheduler")
	defer elector.Close()

	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		panic(err)
	}
	defer scheduler.Shutdown()
	done := make(chan bool)
	poll := sync.OnceFunc(func() {
		fmt.Println("the leader polls")
		close(done)
	})
	task := elector.Task(func(ctx context.Context) error { // ctx ends with the term
		poll()
		return nil
	})
	if _, err := scheduler.NewJob(gocron.DurationJob(10*time.Millisecond), task); err != nil {
		panic(err)
	}
	scheduler.Start()
	<-done
	// Output: the leader polls
}
