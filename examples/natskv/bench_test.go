package natskv_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/examples/natskv"
)

// Clients with their own connections, like different processes, want the same name all the time.
func BenchmarkHandOff(b *testing.B) {
	for _, clients := range []int{1, 10, 100} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			url := startServer(b)
			var locks []*dibs.Client
			var swaps, conflicts atomic.Int64
			for range clients {
				s, err := natskv.NewCounting(b.Context(), connect(b, url), "locks", &swaps, &conflicts)
				if err != nil {
					b.Fatal(err)
				}
				c := dibs.New(s, dibs.Timeout(time.Minute))
				b.Cleanup(func() { _ = c.Close() })
				locks = append(locks, c)
			}
			turns := make(chan struct{})
			var running sync.WaitGroup
			for _, c := range locks {
				running.Go(func() {
					for range turns {
						if err := c.Mutex("n").Do(b.Context(), func(context.Context) error { return nil }); err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.ResetTimer()
			for range b.N {
				turns <- struct{}{}
			}
			close(turns)
			running.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "handoffs/s")
			b.ReportMetric(float64(swaps.Load())/float64(b.N), "swaps/op")
			b.ReportMetric(float64(conflicts.Load())/float64(b.N), "conflicts/op")
		})
	}
}
