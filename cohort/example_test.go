package cohort_test

import (
	"context"
	"fmt"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cohort"
	"github.com/dibslock/dibs/memstore"
)

// A process's calls share a lease in the store. Each has its own fence.
func Example() {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	hot := cohort.New(locks.Mutex("counter"), 32, 100*time.Millisecond)

	var last uint64
	for range 3 {
		err := hot.Do(context.Background(), func(ctx context.Context) error {
			fmt.Println("a larger fence:", dibs.Fence(ctx) > last)
			last = dibs.Fence(ctx)
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// a larger fence: true
	// a larger fence: true
	// a larger fence: true
}
