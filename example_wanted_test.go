package dibs_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// A long import works in chunks. A request that waits for the lock enters between two of them.
// After Yield the lease has a new fence.
func ExampleLease_Yield() {
	ctx := context.Background()
	store := memstore.New()
	locks := dibs.New(store)
	defer locks.Close()
	catalogue := locks.Mutex("catalogue")

	load := func(ctx context.Context, chunk int, fence uint64) error {
		fmt.Println("import chunk", chunk, "with a fence:", fence > 0)
		return ctx.Err()
	}
	shown := make(chan error, 1)
	err := catalogue.Do(ctx, func(ctx context.Context) error {
		lease, err := dibs.LeaseOf(ctx, "catalogue")
		if err != nil {
			return err
		}
		for chunk := 1; chunk <= 3; chunk++ {
			if err := load(ctx, chunk, lease.Fence()); err != nil { // the fence changes with Yield
				return err
			}
			if chunk == 1 {
				go func() { shown <- showPage(store) }()
				<-lease.Wanted()
			}
			if err := lease.Yield(ctx); err != nil {
				return err // the lock is not held any more
			}
		}
		return nil
	})
	fmt.Println(err, <-shown)
	// Output:
	// import chunk 1 with a fence: true
	// show a page
	// import chunk 2 with a fence: true
	// import chunk 3 with a fence: true
	// <nil> <nil>
}

// showPage is another process.
func showPage(store *memstore.Store) error {
	locks := dibs.New(store, dibs.Wait(3*time.Second))
	defer locks.Close()
	return locks.Mutex("catalogue").Do(context.Background(), func(context.Context) error {
		fmt.Println("show a page")
		return nil
	})
}

// A process that keeps a lock while idle releases it when another process wants it.
func ExampleLease_Wanted() {
	ctx := context.Background()
	store := memstore.New()
	locks, other := dibs.New(store), dibs.New(store)
	defer locks.Close()
	defer other.Close()

	lease, err := locks.Mutex("printer").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		select {
		case <-lease.Wanted():
			fmt.Println("somebody waits")
		case <-lease.Context().Done():
		}
		_ = lease.Unlock() // the error is the context's
	}()
	next, err := other.Mutex("printer").Lock(ctx, dibs.Wait(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer next.Unlock()
	fmt.Println("the next one prints")
	// Output:
	// somebody waits
	// the next one prints
}

// A function that must run under a lock asserts it.
func ExampleClient_Holds() {
	ctx := context.Background()
	locks := dibs.New(memstore.New())
	defer locks.Close()

	pay := func(ctx context.Context, order string) error {
		if err := locks.Holds(ctx, "order:"+order); err != nil {
			return err
		}
		fmt.Println("paid order", order)
		return nil
	}
	fmt.Println(locks.Mutex("order:42").Do(ctx, func(ctx context.Context) error { return pay(ctx, "42") }))
	fmt.Println(errors.Is(pay(ctx, "42"), dibs.ErrInvalid))
	// Output:
	// paid order 42
	// <nil>
	// true
}
