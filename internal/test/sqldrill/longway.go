package sqldrill

import (
	"context"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// LocksOnALongWay checks that locks work when a round trip takes almost the whole time allowed for
// an operation.
func LocksOnALongWay(t *testing.T, s driver.Store) {
	t.Helper()
	const lasts, least = 15 * time.Second, 4
	locks := dibs.New(s)
	t.Cleanup(func() { locks.Close() })
	entries, failures := 0, 0
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		if err := locks.Mutex("n").Do(t.Context(), func(context.Context) error { return nil }); err == nil {
			entries++
		} else {
			failures++
			t.Log(err)
		}
	}
	t.Logf("FIGURE %d entries and %d failures in %v", entries, failures, lasts)
	if entries < least {
		t.Errorf("%d entries in %v, want at least %d", entries, lasts, least)
	}
}
