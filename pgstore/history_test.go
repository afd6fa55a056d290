package pgstore_test

import (
	"os"
	"testing"

	"github.com/dibslock/dibs/pgstore"
	"github.com/dibslock/dibs/storetest"
)

// A server and its clients are consistent in real time, with notifications and without.
func TestHistory(t *testing.T) {
	t.Parallel()
	seeds, ops := 1, 1500
	if os.Getenv("DIBS_LONG") == "1" {
		seeds, ops = 5, 10_000
	}
	for seed := range seeds {
		storetest.RunHistory(t, newStore(t), uint64(seed), ops)
		storetest.RunHistory(t, newStore(t, pgstore.Poll()), uint64(seed), ops/3)
	}
}
