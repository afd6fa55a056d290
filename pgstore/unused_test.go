package pgstore_test

import (
	"testing"

	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/pgstore"
)

func TestUnusedNamesAreRemoved(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL())
	sqldrill.RemovesUnused(t, newStoreOn(t, pool, pgstore.Schema("unused")), sqldrill.Unused{
		Age: func() {
			for _, text := range []string{
				"SELECT unused.enqueue_v1(ARRAY['dead waiter'], 'w', 'c', 1, 1, 1, 0, 1)",
				"UPDATE unused.waiters SET missed = 1", // otherwise it can still answer
			} {
				if _, err := pool.Exec(t.Context(), text); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := pool.Exec(t.Context(), "UPDATE unused.names SET fence = fence + $1", sqldrill.FenceStep); err != nil {
				t.Fatal(err)
			}
		},
		Remove: func() (end bool) {
			if err := pool.QueryRow(t.Context(), "SELECT NOT unused.remove_unused_v1(7, 9e18::bigint)").Scan(&end); err != nil {
				t.Fatal(err)
			}
			return end
		},
		Check: func() {
			var rows int
			if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM unused.names").Scan(&rows); err != nil || rows != 100 {
				t.Errorf("%d rows are left, %v, want the 100 names that are held", rows, err)
			}
		},
	})
}
