package mysqlstore_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/sqldrill"
	"github.com/dibslock/dibs/mysqlstore"
)

// A heartbeat does not wait for the name, which others have locked.
func TestHeartbeatDoesNotLockTheName(t *testing.T) {
	t.Parallel()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	prefix := fmt.Sprintf("beats_%d_", prefixes.Add(1))
	s := mysqlstore.New(db, mysqlstore.Prefix(prefix))
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	request := func(token string, ticket uint64) driver.AcquireReply {
		t.Helper()
		reply, err := s.Acquire(t.Context(), driver.AcquireRequest{
			Name: "n", Token: token, Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true, Ticket: ticket, Until: time.Now().Add(5 * time.Second),
		})
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	first := request("first", 0)
	var waits []driver.AcquireReply
	for i := range 120 {
		waits = append(waits, request(fmt.Sprint("waiter", i), 0))
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var fence uint64
	if err := tx.QueryRowContext(t.Context(), "SELECT fence FROM "+prefix+"names WHERE name = 'n' FOR UPDATE").Scan(&fence); err != nil || fence != first.Fence {
		t.Fatalf("fence %d, %v; want %d", fence, err, first.Fence)
	}
	for _, i := range []int{0, 1, 50, 99, 119} {
		reply := request(fmt.Sprint("waiter", i), waits[i].Ticket)
		if want := min(i+1, 101); reply.Held || reply.Ticket != waits[i].Ticket || reply.Position != want || reply.Holder != "first" || reply.Fence != fence || reply.Remaining <= 0 {
			t.Errorf("waiter %d: %+v, want position %d and ticket %d", i, reply, want, waits[i].Ticket)
		}
	}
}

// Many callers of one process are all served.
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
