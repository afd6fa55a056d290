package dibstus_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibstus"
	"github.com/dibslock/dibs/memstore"
	"github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"
)

// Each of several servers runs this code. They share the uploads' directory.
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
	mux.Handle("/files/", http.StripPrefix("/files/", tusd)) // an http.Server's handler

	// A client creates an upload with 5 bytes, and sends them under the upload's lock.
	created := send(mux, http.MethodPost, "/files/", "", "Upload-Length: 5")
	fmt.Println(created.Status)
	upload := created.Header.Get("Location")
	sent := send(mux, http.MethodPatch, upload, "hello", "Upload-Offset: 0", "Content-Type: application/offset+octet-stream")
	fmt.Println(sent.Status, "bytes:", sent.Header.Get("Upload-Offset"))
	// Output:
	// 201 Created
	// 204 No Content bytes: 5
}

// send sends a tus request to a server.
func send(server http.Handler, method, url, body string, header ...string) *http.Response {
	r := httptest.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	r.Header.Set("Tus-Resumable", "1.0.0")
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	return w.Result()
}
