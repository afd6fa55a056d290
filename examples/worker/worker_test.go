package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// Three machines whose clocks differ by up to 10 s run the job once a minute, also if it
// fails.
func TestOneMachineRunsTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var runs []time.Time
		var group sync.WaitGroup
		for machine := range 3 {
			locks := dibs.New(store)
			defer locks.Close()
			group.Go(func() {
				work(ctx, locks, func(ctx context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					runs = append(runs, time.Now())
					if len(runs)%3 == 0 {
						return errors.New("no paper")
					}
					return nil
				})
			})
			_ = machine
		}
		time.Sleep(10*time.Minute + time.Second)
		cancel()
		group.Wait()
		if len(runs) != 10 {
			t.Errorf("%d runs in 10 minutes: %v", len(runs), runs)
		}
	})
}
