package memstore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// Two clients on the same store are like two processes: each excludes the other.
func Example() {
	store := memstore.New()
	here, there := dibs.New(store), dibs.New(store)
	defer here.Close()
	defer there.Close()

	ctx := context.Background()
	lease, err := here.Mutex("order:42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = there.Mutex("order:42").TryLock(ctx)
	fmt.Println("busy:", errors.Is(err, dibs.ErrBusy))
	fmt.Println("unlock:", lease.Unlock())
	_, err = there.Mutex("order:42").TryLock(ctx)
	fmt.Println("then:", err)
	// Output:
	// busy: true
	// unlock: <nil>
	// then: <nil>
}
