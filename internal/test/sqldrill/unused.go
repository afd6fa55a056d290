package sqldrill

import (
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// Unused gives a test access to a store's removal of unused names.
type Unused struct {
	// Age adds a dead waiter for the name "dead waiter", and raises all fences by FenceStep.
	Age func()
	// Remove removes some unused names, and reports whether it reached the last name.
	Remove func() (end bool)
	// Check checks which rows are left. 100 names are held.
	Check func()
}

// FenceStep is the amount by which Age raises fences: as if the server's clock were set back by an
// hour afterwards.
const FenceStep = 3_600_000_000

// RemovesUnused checks that unused names are removed, held names stay, and fences continue to grow.
func RemovesUnused(t *testing.T, s driver.Store, u Unused) {
	t.Helper()
	locks := dibs.New(s, dibs.Timeout(10*time.Second))
	t.Cleanup(func() { _ = locks.Close() })
	var last uint64
	for i := range 300 {
		l, err := locks.Mutex(fmt.Sprintf("n%03d", i)).Lock(t.Context(), dibs.TTL(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		last = l.Fence()
		if i%3 == 0 {
			continue
		}
		if err := l.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	for name, limit := range map[string]int{"dead": 1, "dead reader": 2, "dead waiter": 1} {
		request := driver.AcquireRequest{Name: name, Token: "t", Client: "c", TTL: time.Millisecond, Weight: 1, Limit: limit}
		if reply, err := s.Acquire(t.Context(), request); err != nil || !reply.Held {
			t.Fatalf("%+v, %v", reply, err)
		}
	}
	u.Age()
	for ends := 0; ends < 2; { // the store may have begun in the middle
		if u.Remove() {
			ends++
		}
	}
	u.Check()
	l, err := locks.Mutex("n299").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last += FenceStep; l.Fence() <= last {
		t.Errorf("fence %d after %d", l.Fence(), last)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}
