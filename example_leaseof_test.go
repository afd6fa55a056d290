package dibs_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// Do's function can inspect and extend its lease.
func ExampleLeaseOf() {
	ctx := context.Background()
	locks := dibs.New(memstore.New())
	defer locks.Close()

	// upload does not know which code acquired the lock.
	upload := func(ctx context.Context) error {
		lease, err := dibs.LeaseOf(ctx, "backup")
		if err != nil {
			return err // the caller does not hold the lock
		}
		// The network may be away for longer than usual.
		if err := lease.Extend(ctx, 5*time.Minute); err != nil {
			return err
		}
		fmt.Println("more than 4 minutes left:", time.Until(lease.Deadline()) > 4*time.Minute)
		fmt.Println("unlock is for Do:", errors.Is(lease.Unlock(), dibs.ErrInvalid))
		return nil
	}
	fmt.Println(locks.Mutex("backup").Do(ctx, upload))
	fmt.Println(errors.Is(upload(ctx), dibs.ErrInvalid))
	// Output:
	// more than 4 minutes left: true
	// unlock is for Do: true
	// <nil>
	// true
}

// A semaphore's permits are held as long as a connection, and its work also ends with the request.
func ExampleWithLease() {
	request, endRequest := context.WithCancel(context.Background())
	defer endRequest()
	locks := dibs.New(memstore.New())
	defer locks.Close()

	lease, err := locks.Semaphore("uploads", 4).Permits(2).Lock(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Unlock()
	ctx, cancel := dibs.WithLease(request, lease)
	defer cancel()

	fmt.Println("held:", locks.Holds(ctx, "uploads"))
	endRequest()
	<-ctx.Done()
	fmt.Println(context.Cause(ctx))
	fmt.Println("held until Unlock:", lease.Err())
	// Output:
	// held: <nil>
	// context canceled
	// held until Unlock: <nil>
}
