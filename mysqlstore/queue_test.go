package mysqlstore_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/mysqlstore"
)

// newQueue returns a new store's queue.
func newQueue(t *testing.T) sqldrill.Queue {
	t.Helper()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	prefix := fmt.Sprintf("queue_%d_", prefixes.Add(1))
	s := mysqlstore.New(db, mysqlstore.TablePrefix(prefix))
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return sqldrill.Queue{
		Store: s, DB: db, Tables: prefix, Now: "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)",
		Blocked: "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE '%" + prefix + "%'",
	}
}

// A heartbeat does not wait for the name, which others have locked.
func TestHeartbeatDoesNotLockTheName(t *testing.T) {
	t.Parallel()
	newQueue(t).HeartbeatsLockNothing(t)
}

func TestHeartbeatDoesNotReviveAWaiter(t *testing.T) {
	newQueue(t).HeartbeatDoesNotRevive(t)
}

func TestHeartbeatKeepsAnEntry(t *testing.T) {
	newQueue(t).HeartbeatKeepsAnEntry(t)
}

func TestHandoffBeginsWithItsEntry(t *testing.T) {
	newQueue(t).HandoffBeginsWithItsEntry(t)
}

// A process with many callers serves them all.
func TestManyCallersOfOneName(t *testing.T) {
	callers := 200
	if os.Getenv("DIBS_LONG") == "1" {
		callers = 1000
	}
	db := newDB(t, sharedServer(t).DSN("mysql"))
	db.SetMaxOpenConns(20)
	db.SetMaxIdleConns(20)
	sqldrill.ServesCallers(t, newStoreOn(t, db), callers)
}
