package dibstus_test

import (
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibstus"
	"github.com/dibslock/dibs/memstore"
	"github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"
)

// Each of several servers does this. They share the directory of the uploads.
func Example() {
	dir, err := os.MkdirTemp("", "uploads")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	locks := dibs.New(memstore.New()) // or goredisstore.New(rdb)
	defer locks.Close()

	composer := handler.NewStoreComposer()
	filestore.New(dir).UseIn(composer)
	dibstus.New(locks, dibs.TTL(10*time.Second)).UseIn(composer)

	tusd, err := handler.NewHandler(handler.Config{BasePath: "/files/", StoreComposer: composer})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/files/", http.StripPrefix("/files/", tusd))
	fmt.Println("uses a locker:", composer.UsesLocker)
	// Output: uses a locker: true
}
