package pgstore_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/pgstore"
)

// A request that the server executes after its time does nothing, and returns the time.
func TestLateRequests(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL())
	s := newStoreOn(t, pool, pgstore.Schema("late"))
	c := driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1}
	if reply, err := s.Acquire(t.Context(), c); err != nil || !reply.Held {
		t.Fatalf("%+v, %v", reply, err)
	}
	for verb, call := range map[string]string{
		"acquire": "SELECT at, held FROM late.acquire(ARRAY['m'], 'u', 'c', 1000000, 1, 1, true, 0, 1)",
		"queue":   "SELECT at, held FROM late.acquire(ARRAY['n'], 'u', 'c', 1000000, 1, 1, true, 0, 1)",
		"resize":  "SELECT at, held FROM late.resize('n', 't', 'c', 1000000, 1, 2, 1)",
		"release": "SELECT at, held FROM late.release('n', 't', 0, false, 1)",
		"cancel":  "SELECT at, done FROM late.cancel(ARRAY['n'], 't', 1)",
		"wanted":  "SELECT at, wanted FROM late.wanted('n', 't', 'c', 1)",
	} {
		var at int64
		var held *bool
		if err := pool.QueryRow(t.Context(), call).Scan(&at, &held); err != nil || at == 0 || held != nil {
			t.Errorf("%s: at %d, held %v, %v; want the time only", verb, at, held, err)
		}
	}
	for name, holders := range map[string]int{"m": 0, "n": 1} {
		state, err := s.Inspect(t.Context(), name)
		if err != nil || state.Holding != holders || state.Waiting != 0 {
			t.Errorf("%q: %+v, %v, want %d holders", name, state, err, holders)
		}
	}
}
