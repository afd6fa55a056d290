package mysqlstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/mysqlstore"
)

// Another program's transaction locks the queue for longer than a waiter TTL. The order stays.
func TestStallKeepsTheOrder(t *testing.T) {
	t.Parallel()
	dsn := sharedServer(t).DSN("mysql")
	db, prefix := newDB(t, dsn), fmt.Sprintf("stall%d_", prefixes.Add(1))
	if err := mysqlstore.New(db, mysqlstore.TablePrefix(prefix)).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	open := func() driver.Store { return mysqlstore.New(newDB(t, dsn), mysqlstore.TablePrefix(prefix)) }
	sqldrill.KeepsPlaces(t, "n", sqldrill.StallTimeout, open, func() {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if _, err := conn.ExecContext(t.Context(), "LOCK TABLES "+prefix+"waiters WRITE"); err != nil {
			t.Error(err)
		}
		time.Sleep(driver.WaiterTTL * 7 / 5) // the stall
		if _, err := conn.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
			t.Error(err)
		}
	})
}

// The server's clock is set while requests wait. The order stays.
func TestClockStepKeepsTheOrder(t *testing.T) {
	t.Parallel()
	const now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	for _, step := range []time.Duration{300 * time.Millisecond, -300 * time.Millisecond, 6 * time.Second, -6 * time.Second, time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			dsn := sharedServer(t).DSN("mysql")
			db, prefix := newDB(t, dsn), fmt.Sprintf("step%d_", prefixes.Add(1))
			mustExec(t, db, "CREATE TABLE "+prefix+"step (us BIGINT)", "INSERT INTO "+prefix+"step VALUES (0)")
			stepped := "(" + now + " + (SELECT us FROM " + prefix + "step))"
			statements, err := mysqlstore.SQL(prefix, 0, mysqlstore.Version)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range statements {
				mustExec(t, db, strings.ReplaceAll(text, now, stepped))
			}
			open := func() driver.Store { return mysqlstore.New(newDB(t, dsn), mysqlstore.TablePrefix(prefix)) }
			sqldrill.KeepsPlaces(t, "n", 20*time.Second, open, func() {
				time.Sleep(driver.WaiterTTL / 4)
				mustExec(t, db, fmt.Sprintf("UPDATE %sstep SET us = %d", prefix, step.Microseconds()))
			})
		})
	}
}
