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
	hot := cohort.New(locks.Mutex("counter"), cohort.IdleHold(100*time.Millisecond))

	var last uint64
	for range 3 {
		err := hot.Do(context.Background(), func(ctx context.Context) error {
			fence, err := dibs.Fence(ctx)
			fmt.Println("a larger fence:", fence > last)
			last = fence
			return err
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
