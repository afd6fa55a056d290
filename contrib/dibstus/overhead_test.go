package dibstus_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibstus"
	"github.com/dibslock/dibs/memstore"
	"github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"
	"golang.org/x/exp/slog"
)

// BenchmarkOverhead measures a request that adds a byte to an upload, without its connection: with
// tusd without a locker, and with the dibs Locker.
func BenchmarkOverhead(b *testing.B) {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	b.Run("bare", func(b *testing.B) { measureUpload(b, handler.NewStoreComposer()) })
	b.Run("dibs", func(b *testing.B) {
		composer := handler.NewStoreComposer()
		dibstus.New(locks).UseIn(composer)
		measureUpload(b, composer)
	})
}

func measureUpload(b *testing.B, composer *handler.StoreComposer) {
	filestore.New(b.TempDir()).UseIn(composer)
	tusd, err := handler.NewHandler(handler.Config{
		BasePath: basePath, StoreComposer: composer, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		b.Fatal(err)
	}
	server := http.StripPrefix(basePath, tusd)
	created := send(server, http.MethodPost, basePath, "", "Upload-Length: 1000000000")
	if created.StatusCode != http.StatusCreated {
		b.Fatal(created.Status)
	}
	upload := created.Header.Get("Location")
	b.ReportAllocs()
	for offset := 0; b.Loop(); offset++ {
		sent := send(server, http.MethodPatch, upload, "x", fmt.Sprint("Upload-Offset: ", offset), "Content-Type: application/offset+octet-stream")
		if sent.StatusCode != http.StatusNoContent {
			b.Fatal(sent.Status)
		}
	}
}
