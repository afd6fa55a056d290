package dibscertmagic_test

import (
	"context"
	"fmt"
	"os"

	"github.com/caddyserver/certmagic"
	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibscertmagic"
	"github.com/dibslock/dibs/memstore"
)

// The certificates stay in the given storage. Only its locks are replaced.
func Example() {
	dir, err := os.MkdirTemp("", "certificates")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	locks := dibs.New(memstore.New()) // or goredisstore.New(rdb)
	defer locks.Close()

	storage := dibscertmagic.New(&certmagic.FileStorage{Path: dir}, locks)
	// certmagic.Default.Storage = storage

	ctx := context.Background()
	fmt.Println(storage.Lock(ctx, "issue_cert_example.com"))
	fmt.Println(storage.TryLock(ctx, "issue_cert_example.com"))
	fmt.Println(storage.Unlock(ctx, "issue_cert_example.com"))
	// Output:
	// <nil>
	// false <nil>
	// <nil>
}
