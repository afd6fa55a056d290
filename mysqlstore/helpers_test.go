package mysqlstore_test

import (
	"database/sql"
	"math/rand/v2"
	"testing"
)

func mustExec(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// connectionsOf returns some of a user's connections, at random.
func connectionsOf(t *testing.T, db *sql.DB, user string) (ids []int64) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT id FROM information_schema.processlist WHERE user = ?", user)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Error(err)
		}
		if rand.IntN(5) == 0 {
			ids = append(ids, id)
		}
	}
	if err := rows.Err(); err != nil {
		t.Error(err)
	}
	return ids
}
