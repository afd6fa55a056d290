package driver_test

import (
	"context"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// A Client sends such requests; the same one again is the heartbeat of a waiter.
func ExampleAcquireRequest() {
	var store driver.Store = memstore.New()
	ctx := context.Background()
	request := driver.AcquireRequest{
		Name: "order:42", Token: "web-7:1:first", Client: "web-7:1", TTL: 30 * time.Second, Weight: 1, Limit: 1,
		Queue: true, Until: time.Now().Add(time.Second),
	}
	reply, err := store.Acquire(ctx, request)
	fmt.Println("first:", reply.Held, err)

	request.Token = "web-8:1:second"
	reply, err = store.Acquire(ctx, request)
	fmt.Println("second:", reply.Held, "position", reply.Position, "behind", reply.Holder, err)
	// Output:
	// first: true <nil>
	// second: false position 1 behind web-7:1:first <nil>
}

func ExampleCheckName() {
	fmt.Println(driver.CheckName("order:42"))
	fmt.Println(driver.CheckName(""))
	// Output:
	// <nil>
	// dibs: invalid: empty name
}
