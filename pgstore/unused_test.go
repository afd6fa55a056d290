package pgstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/pgstore"
)

// Names that nobody uses are removed, and fences go on growing. What is held or waited for stays.
func TestUnusedNamesAreRemoved(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL())
	s := newStoreOn(t, pool, pgstore.Schema("unused"))
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
	// A holder and a waiter that died.
	for _, c := range []driver.AcquireRequest{
		{Name: "dead", Token: "t", Client: "c", TTL: time.Millisecond, Weight: 1, Limit: 1},
		{Name: "dead reader", Token: "t", Client: "c", TTL: time.Millisecond, Weight: 1, Limit: 2},
		{Name: "dead waiter", Token: "t", Client: "c", TTL: time.Millisecond, Weight: 1, Limit: 1},
	} {
		if reply, err := s.Acquire(t.Context(), c); err != nil || !reply.Held {
			t.Fatalf("%+v, %v", reply, err)
		}
	}
	if _, err := pool.Exec(t.Context(), "SELECT unused.enqueue_v1(ARRAY['dead waiter'], 'w', 'c', 1, 1, 1, 0, 1)"); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "UPDATE unused.waiters SET missed = 1"); err != nil { // else it has some time to answer
		t.Fatal(err)
	}
	// As if the server's clock were set back by an hour afterwards.
	if _, err := pool.Exec(t.Context(), "UPDATE unused.names SET fence = fence + 3600000000"); err != nil {
		t.Fatal(err)
	}
	last += 3600000000
	for ends := 0; ends < 2; { // the store may have begun in the middle
		var more bool
		if err := pool.QueryRow(t.Context(), "SELECT unused.remove_unused_v1(7, 9e18::bigint)").Scan(&more); err != nil {
			t.Fatal(err)
		}
		if !more {
			ends++
		}
	}
	var rows int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM unused.names").Scan(&rows); err != nil || rows != 100 {
		t.Errorf("%d rows are left, %v, want the 100 names that are held", rows, err)
	}
	l, err := locks.Mutex("n299").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if l.Fence() <= last {
		t.Errorf("fence %d after %d", l.Fence(), last)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}
