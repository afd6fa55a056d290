package sqldrill

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
)

// Numbers for BenchmarkInspectAll.
const (
	heldNames = 10_000
	waiters   = 1000
)

// BenchmarkInspectAll measures a call for 10,000 held names, a tenth of them by readers, and 1,000
// waiters. It does not measure heartbeats.
func BenchmarkInspectAll(b *testing.B, s driver.Store) {
	names := make([]string, heldNames)
	var requests []driver.AcquireRequest
	add := func(i int, token string, weight, limit int) {
		requests = append(requests, driver.AcquireRequest{
			Name: names[i], Token: fmt.Sprintf("web-7:211:q3ZkAbCdEfGhIjKl:%s-%d", token, i), Client: "web-7:211:q3ZkAbCdEfGhIjKl",
			TTL: time.Hour, Weight: weight, Limit: limit, Queue: true,
		})
	}
	for i := range names {
		names[i] = fmt.Sprintf("order:%06d", i)
		if i%10 == 0 {
			add(i, "r", 1, driver.Unlimited)
		} else {
			add(i, "m", 1, 1)
		}
	}
	acquireEach(b, s, requests)
	requests = nil
	for i := range waiters {
		add(1+10*(i%100), fmt.Sprint("w", i), 1, 1)
	}
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		acquireEach(b, s, requests) // heartbeats
		b.StartTimer()
		states, err := driver.Complete(s).InspectAll(b.Context(), names)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		holding, waiting := 0, 0
		for _, state := range states {
			holding += state.Holding
			waiting += state.Waiting
		}
		if holding != heldNames || waiting != waiters {
			b.Fatalf("%d holders and %d waiters, want %d and %d", holding, waiting, heldNames, waiters)
		}
		b.StartTimer()
	}
}

// acquireEach sends each request once, some at a time.
func acquireEach(b *testing.B, s driver.Store, requests []driver.AcquireRequest) {
	b.Helper()
	next := make(chan driver.AcquireRequest)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for r := range next {
				r.Until = time.Now().Add(time.Minute)
				if _, err := s.Acquire(b.Context(), r); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for _, r := range requests {
		next <- r
	}
	close(next)
	group.Wait()
}
