package localstore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/localstore"
)

// All processes that open the same file on a machine share its locks.
func Example() {
	dir, err := os.MkdirTemp("", "locks")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	store, err := localstore.Open(filepath.Join(dir, "locks.db"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	locks := dibs.New(store)
	defer locks.Close() // before the store

	err = locks.Mutex("nightly").Do(context.Background(), func(context.Context) error {
		fmt.Println("nobody else on this machine is here")
		return nil
	})
	fmt.Println(err)
	// Output:
	// nobody else on this machine is here
	// <nil>
}
