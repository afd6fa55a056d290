package sqldrill

import (
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// ServesCallers lets many callers in a process lock a single name at once, with the default
// timeout for each request. All of them must be served.
func ServesCallers(t *testing.T, s driver.Store, callers int) {
	t.Helper()
	locks := dibs.New(s)
	begin := time.Now()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			l, err := locks.Mutex("hot").Lock(t.Context())
			if err == nil {
				err = l.Unlock()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	t.Logf("FIGURE %d callers in %v", callers, time.Since(begin).Round(time.Millisecond))
	if err := locks.Close(); err != nil {
		t.Error(err)
	}
	wantFree(t, s, "hot")
}
