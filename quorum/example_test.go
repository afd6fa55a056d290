package quorum_test

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/quorum"
)

func Example() {
	// In a program: goredisstore.New(…) for three servers that share nothing.
	store, err := quorum.New(memstore.New(), memstore.New(), memstore.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	locks := dibs.New(store)
	defer locks.Close()

	err = locks.Mutex("order:42").Do(context.Background(), func(context.Context) error {
		fmt.Println("paying")
		return nil
	})
	fmt.Println(err)
	// Output:
	// paying
	// <nil>
}
