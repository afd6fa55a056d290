package pgstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// newPlaces returns a schema's name, a pool, and a function to open a store in the schema with its
// own pool.
func newPlaces(t *testing.T) (schema string, direct *pgxpool.Pool, open func() driver.Store) {
	t.Helper()
	url := sharedServer(t).URL()
	direct, schema = newPool(t, url), fmt.Sprintf("places_%d", schemas.Add(1))
	newStoreOn(t, direct, pgstore.Schema(schema))
	return schema, direct, func() driver.Store { return pgstore.New(newPool(t, url), pgstore.Schema(schema)) }
}

// Another program's transaction locks the queue for longer than a waiter TTL. The order should
// stay.
func TestStallKeepsTheOrder(t *testing.T) {
	t.Parallel()
	schema, direct, open := newPlaces(t)
	sqldrill.KeepsPlaces(t, "n", sqldrill.StallTimeout, open, func() {
		err := pgx.BeginFunc(t.Context(), direct, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), fmt.Sprintf("LOCK TABLE %s.waiters", schema))
			time.Sleep(driver.WaiterTTL * 7 / 5) // the stall
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// The server's clock is set while requests wait. The order stays.
func TestClockStepKeepsTheOrder(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{300 * time.Millisecond, -300 * time.Millisecond, 6 * time.Second, -6 * time.Second, time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			schema, direct, open := newPlaces(t)
			exec := func(text string, args ...any) {
				if _, err := direct.Exec(t.Context(), fmt.Sprintf(text, schema), args...); err != nil {
					t.Error(err)
				}
			}
			exec("CREATE TABLE %[1]s.step (us bigint)")
			exec("INSERT INTO %[1]s.step VALUES (0)")
			exec(`CREATE OR REPLACE FUNCTION %[1]s.now() RETURNS bigint LANGUAGE sql VOLATILE AS $$
			  SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint + (SELECT us FROM %[1]s.step)
			$$`)
			sqldrill.KeepsPlaces(t, "n", 20*time.Second, open, func() {
				time.Sleep(driver.WaiterTTL / 4)
				exec("UPDATE %[1]s.step SET us = $1", step.Microseconds())
			})
		})
	}
}
