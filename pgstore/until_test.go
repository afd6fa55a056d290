package pgstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/pgstore"
)

// A request executed after its deadline does nothing, and returns the time.
func TestLateRequests(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL())
	s := newStoreOn(t, pool, pgstore.Schema("late"))
	r := driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Until: time.Now().Add(time.Minute)}
	reply, err := s.Acquire(t.Context(), r)
	if err != nil || !reply.Held {
		t.Fatalf("%+v, %v", reply, err)
	}
	for verb, call := range map[string]string{
		"acquire": "SELECT at, held FROM late.acquire_v1(ARRAY['m'], 'u', 'c', 1000000, 1, 1, true, 0, 1)",
		"queue":   "SELECT at, held FROM late.acquire_v1(ARRAY['n'], 'u', 'c', 1000000, 1, 1, true, 0, 1)",
		"resize":  "SELECT at, held FROM late.resize_v1('n', 't', 'c', 1000000, 1, 2, 1)",
		"release": "SELECT at, held FROM late.release_v1('n', 't', 0, false, 1)",
		"cancel":  "SELECT at, done FROM late.cancel_v1(ARRAY['n'], 't', 1)",
		"wanted":  "SELECT at, wanted FROM late.wanted_v1('n', 't', 'c', 1)",
		"revoke":  fmt.Sprintf("SELECT at, revoked FROM late.revoke_v1('n', %d, 'why', 1)", reply.Fence),
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

// A request should acquire nothing if it waits for a free name's row until it is late, although the
// row is unchanged.
func TestLateForARow(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL())
	schema := fmt.Sprintf("late_%d", schemas.Add(1))
	s := newStoreOn(t, pool, pgstore.Schema(schema))
	const patience = 2 * time.Second
	for kind, acquire := range map[string]func(ctx context.Context, until int64) error{
		"quiet": func(ctx context.Context, until int64) error {
			_, err := pool.Exec(ctx, s.AcquireQuiet(), "n", "t", "c", 60_000_000, 1, until)
			return err
		},
		"one": func(ctx context.Context, until int64) error {
			_, err := pool.Exec(ctx, "SELECT * FROM "+schema+".acquire_one_v1('n', 't', 'c', 60000000, 1, 1, false, 0, $1)", until)
			return err
		},
	} {
		request := driver.AcquireRequest{Name: "n", Token: "before", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1}
		if reply, err := s.Acquire(t.Context(), request); err != nil || !reply.Held {
			t.Fatalf("%+v, %v", reply, err)
		}
		if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: "before"}); err != nil {
			t.Fatal(err)
		}
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }() // a failed test would wait for the pool
		if _, err := tx.Exec(t.Context(), "SELECT FROM "+schema+".names WHERE name = 'n' FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		var until int64
		if err := tx.QueryRow(t.Context(), "SELECT "+schema+".now_v1() + $1", patience.Microseconds()).Scan(&until); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- acquire(t.Context(), until) }()
		for late := false; !late; {
			if err := tx.QueryRow(t.Context(), "SELECT "+schema+".now_v1() > $1", until).Scan(&late); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err == nil {
			t.Errorf("%s: no error of a request that is late", kind)
		}
		if state, err := s.Inspect(t.Context(), "n"); err != nil || state.Holding != 0 {
			t.Errorf("%s: %+v, %v, want nobody", kind, state, err)
		}
	}
}
