package mysqlstore_test

import (
	"fmt"
	"testing"

	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/mysqlstore"
)

func TestUnusedNamesAreRemoved(t *testing.T) {
	t.Parallel()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	prefix := fmt.Sprintf("unused%d_", prefixes.Add(1)) // a test may run again
	s := mysqlstore.New(db, mysqlstore.TablePrefix(prefix))
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	sqldrill.RemovesUnused(t, s, sqldrill.Unused{
		Age: func() {
			mustExec(t, db, "CALL "+prefix+"enqueue_v1(CONCAT(HEX('dead waiter'), ','), 'w', 'c', 1, 1, 1, 0, 1, @ticket, @place)",
				"UPDATE "+prefix+"waiters SET missed = 1", // otherwise it can still answer
				fmt.Sprintf("UPDATE %snames SET fence = fence + %d", prefix, sqldrill.FenceStep),
				"INSERT INTO "+prefix+"messages (client, sent, message) VALUES ('c', 1, 'r t')")
		},
		Remove: func() (end bool) {
			var more bool
			if err := db.QueryRowContext(t.Context(), "CALL "+prefix+"remove_unused_v1(7, 9000000000000000000)").Scan(&more); err != nil {
				t.Fatal(err)
			}
			return !more
		},
		Check: func() {
			for table, want := range map[string]int{"names": 100, "guards": 100, "holders": 0, "waiters": 0, "messages": 0} {
				var rows int
				if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+prefix+table).Scan(&rows); err != nil || rows != want {
					t.Errorf("%d rows are left in %s, %v, want the %d of what is held", rows, table, err, want)
				}
			}
		},
	})
}
