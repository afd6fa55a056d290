package dibs_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// importOnce is the code under test: an import that waits at most a minute for another.
func importOnce(ctx context.Context, locks *dibs.Client, load func(ctx context.Context) error) error {
	return locks.Mutex("import").Do(ctx, load, dibs.Wait(time.Minute))
}

// An example of a test: a wait of 30 s takes microseconds, and times are exact.
func TestExampleImportWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := dibs.New(memstore.New()) // made in the bubble
		defer locks.Close()               // before the bubble ends
		first, err := locks.Mutex("import").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(30*time.Second, func() { _ = first.Unlock() })

		begin := time.Now()
		err = importOnce(t.Context(), locks, func(context.Context) error { return nil })
		if err != nil || time.Since(begin) != 30*time.Second {
			t.Errorf("got %v after %v, want nil after 30s", err, time.Since(begin))
		}
	})
}
