package pgstore_test

import (
	"os"
	"testing"

	"github.com/dibslock/dibs/internal/test/history"
	"github.com/dibslock/dibs/pgstore"
)

// A server and its clients are consistent in real time, with notifications and without.
func TestHistory(t *testing.T) {
	t.Parallel()
	seeds, ops := 1, 1500
	if os.Getenv("DIBS_LONG") == "1" {
		seeds, ops = 5, 10_000
	}
	for seed := range seeds {
		history.Run(t, newStore(t), history.Plan{Seed: uint64(seed), Ops: ops})
		history.Run(t, newStore(t, pgstore.Poll()), history.Plan{Seed: uint64(seed), Ops: ops / 3})
	}
}
