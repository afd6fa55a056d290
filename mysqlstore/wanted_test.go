package mysqlstore_test

import (
	"fmt"
	"testing"

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
	db, prefix := newDB(t, sharedServer(t).DSN("mysql")), mysqlstore.TablePrefix(fmt.Sprintf("asked_%d_", prefixes.Add(1)))
	s := mysqlstore.New(db, prefix)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	sqldrill.ForgetsWhoAsked(t, s, mysqlstore.New(db, prefix))
}

// A waiter should cost no further statement if the holder did not ask: the notifying procedure is
// not called.
func TestHolderThatDidNotAsk(t *testing.T) {
	t.Parallel()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	prefix := fmt.Sprintf("not_asked_%d_", prefixes.Add(1)) // a test may run again
	s := mysqlstore.New(db, mysqlstore.TablePrefix(prefix))
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, "DROP PROCEDURE "+prefix+"notify_wanted_v1")
	sqldrill.CostsNothingUnasked(t, s)
}
