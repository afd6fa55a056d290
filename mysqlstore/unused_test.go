package mysqlstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/mysqlstore"
)

// Names that nobody uses are removed, and fences go on growing. What is held or waited for stays.
func TestUnusedNamesAreRemoved(t *testing.T) {
	t.Parallel()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	prefix := fmt.Sprintf("unused%d_", prefixes.Add(1)) // a test may run again
	s := mysqlstore.New(db, mysqlstore.Prefix(prefix))
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
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
	// As if the server's clock were set back by an hour afterwards.
	mustExec(t, db, "CALL "+prefix+"enqueue_v1(CONCAT(HEX('dead waiter'), ','), 'w', 'c', 1, 1, 1, 0, 1, @ticket, @place)",
		"UPDATE "+prefix+"waiters SET missed = 1", // else it has some time to answer

		"UPDATE "+prefix+"names SET fence = fence + 3600000000", "INSERT INTO "+prefix+"messages (client, sent, message) VALUES ('c', 1, 'r t')")
	last += 3600000000
	for ends := 0; ends < 2; { // the store may have begun in the middle
		var more bool
		if err := db.QueryRowContext(t.Context(), "CALL "+prefix+"remove_unused_v1(7, 9000000000000000000)").Scan(&more); err != nil {
			t.Fatal(err)
		}
		if !more {
			ends++
		}
	}
	for table, want := range map[string]int{"names": 100, "guards": 100, "holders": 0, "waiters": 0, "messages": 0} {
		var rows int
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+prefix+table).Scan(&rows); err != nil || rows != want {
			t.Errorf("%d rows are left in %s, %v, want the %d of what is held", rows, table, err, want)
		}
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
