package pgstore_test

import (
	"fmt"
	"testing"

	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/pgstore"
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
	pool, schema := newPool(t, sharedServer(t).URL()), pgstore.Schema(fmt.Sprintf("asked_%d", schemas.Add(1)))
	sqldrill.ForgetsWhoAsked(t, newStoreOn(t, pool, schema), pgstore.New(pool, schema))
}

// A waiter costs no further statement if the holder did not ask: the notifying function is not
// called.
func TestHolderThatDidNotAsk(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL())
	schema := fmt.Sprintf("not_asked_%d", schemas.Add(1)) // a test may run again
	s := newStoreOn(t, pool, pgstore.Schema(schema))
	if _, err := pool.Exec(t.Context(), "DROP FUNCTION "+schema+".notify_wanted_v1"); err != nil {
		t.Fatal(err)
	}
	sqldrill.CostsNothingUnasked(t, s)
}
