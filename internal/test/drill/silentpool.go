package drill

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
)

// SilentServerIsNoFullPool checks the error for a silent server: it should not blame a pool filled
// by dibs' own requests. The store uses the proxy and a pool with a single connection.
func SilentServerIsNoFullPool(t *testing.T, store driver.Store, proxy *redistest.Proxy) {
	t.Helper()
	if _, err := driver.Complete(store).Inspect(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	proxy.Freeze()
	t.Cleanup(proxy.Thaw)
	const calls = 3
	errs := make(chan error, calls)
	for range calls {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
			defer cancel()
			_, err := driver.Complete(store).Inspect(ctx, "m")
			errs <- err
		}()
	}
	for range calls {
		if err := <-errs; !errors.Is(err, dibs.ErrUnavailable) || strings.Contains(err.Error(), "pool") {
			t.Errorf("got %v, want ErrUnavailable without the pool", err)
		}
	}
}
