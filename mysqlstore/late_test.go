package mysqlstore_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/mysqlstore"
)

// A request executed after its deadline should do nothing, and return the time.
func TestLateRequests(t *testing.T) {
	t.Parallel()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	s := mysqlstore.New(db, mysqlstore.TablePrefix("late_"))
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Until: time.Now().Add(time.Minute)}
	if reply, err := s.Acquire(t.Context(), r); err != nil || !reply.Held {
		t.Fatalf("%+v, %v", reply, err)
	}
	for verb, call := range map[string]string{ // n is 6E, m is 6D
		"acquire": "CALL late_acquire_v1('6D,', 'u', 'c', 1000000, 1, 1, TRUE, 0, 1)",
		"queue":   "CALL late_acquire_v1('6E,', 'u', 'c', 1000000, 1, 1, TRUE, 0, 1)",
		"resize":  "CALL late_resize_v1('6E,', 't', 'c', 1000000, 1, 2, 1)",
		"release": "CALL late_release_v1('6E,', 't', 0, FALSE, 1)",
		"cancel":  "CALL late_cancel_v1('6E,', 't', 1)",
		"revoke":  "CALL late_revoke_v1('6E,', 1, '', 1)",
		"wanted":  "CALL late_wanted_v1('6E,', 't', 'c', 1)",
	} {
		rows, err := db.QueryContext(t.Context(), call)
		if err != nil {
			t.Fatalf("%s: %v", verb, err)
		}
		columns, err := rows.Columns()
		if err != nil || !rows.Next() {
			t.Fatalf("%s: %v, %v", verb, err, rows.Err())
		}
		values := make([]sql.RawBytes, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatalf("%s: %v", verb, err)
		}
		if values[0] == nil || values[1] != nil {
			t.Errorf("%s: at %s, held %s; want the time only", verb, values[0], values[1])
		}
		if err := rows.Close(); err != nil {
			t.Error(err)
		}
	}
	for name, holders := range map[string]int{"m": 0, "n": 1} {
		state, err := s.Inspect(t.Context(), name)
		if err != nil || state.Holding != holders || state.Waiting != 0 {
			t.Errorf("%q: %+v, %v, want %d holders", name, state, err, holders)
		}
	}
}
