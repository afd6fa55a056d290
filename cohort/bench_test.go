package cohort_test

import (
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cohort"
	"github.com/dibslock/dibs/memstore"
)

// BenchmarkCohort measures a lock and unlock on a name wanted by one goroutine, or 32, without
// other processes.
func BenchmarkCohort(b *testing.B) {
	for name, goroutines := range map[string]int{"1": 1, "32": 32} {
		b.Run(name, func(b *testing.B) {
			c := dibs.New(memstore.New())
			defer c.Close()
			group := cohort.New(c.Mutex("n"), cohort.IdleHold(100*time.Millisecond))
			b.ReportAllocs()
			var workers sync.WaitGroup
			for range goroutines {
				workers.Go(func() {
					for range b.N / goroutines {
						l, err := group.Lock(b.Context())
						if err != nil {
							b.Error(err)
							return
						}
						if err := l.Unlock(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			workers.Wait()
		})
	}
}
