package mysqlstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/mysqlstore"
)

func TestWantedWhileAWaiterJoins(t *testing.T) {
	t.Parallel()
	sqldrill.NotifiesAtOnce(t, newStore(t), 200)
}

func TestWantedOnce(t *testing.T) {
	t.Parallel()
	sqldrill.NotifiesOnce(t, newStore(t))
}

func TestWantedEndsWithTheLease(t *testing.T) {
	t.Parallel()
	db, prefix := newDB(t, sharedServer(t).DSN("mysql")), mysqlstore.Prefix(fmt.Sprintf("asked_%d_", prefixes.Add(1)))
	s := mysqlstore.New(db, prefix)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	sqldrill.ForgetsWhoAsked(t, s, mysqlstore.New(db, prefix))
}

// A waiter behind a holder that did not ask costs no further statement: the procedure that
// notifies is not called.
func TestHolderThatDidNotAsk(t *testing.T) {
	t.Parallel()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	prefix := fmt.Sprintf("not_asked_%d_", prefixes.Add(1)) // a test may run again
	s := mysqlstore.New(db, mysqlstore.Prefix(prefix))
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, "DROP PROCEDURE "+prefix+"notify_wanted_v1")
	for name, limit := range map[string]int{"exclusive": 1, "shared": driver.Unlimited} {
		holder := driver.AcquireRequest{Name: name, Token: "h", Client: "c", TTL: time.Minute, Weight: 1, Limit: limit}
		waiter := driver.AcquireRequest{Name: name, Token: "w", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true}
		if reply, err := s.Acquire(t.Context(), holder); err != nil || !reply.Held {
			t.Fatalf("%+v, %v", reply, err)
		}
		if reply, err := s.Acquire(t.Context(), waiter); err != nil || reply.Position != 1 {
			t.Errorf("%s, not asked: %+v, %v", name, reply, err)
		}
		if err := s.Cancel(t.Context(), waiter); err != nil {
			t.Fatal(err)
		}
		if wanted, err := s.NotifyWanted(t.Context(), driver.WantedRequest{Name: name, Token: "h", Client: "c"}); err != nil || wanted {
			t.Fatalf("wanted %t, %v", wanted, err)
		}
		if reply, err := s.Acquire(t.Context(), waiter); err == nil {
			t.Errorf("%s, asked: %+v, want the error of a procedure that does not exist", name, reply)
		}
	}
}
