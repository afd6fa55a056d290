package storetest

import (
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/history"
)

// RunHistory runs a number of steps, which are random operations by many clients on a store. It
// records each client's replies, and fails the test if they are impossible: two holders, a fence
// that did not grow, or an overtaken waiter. It also fails if a free name was refused. A seed
// repeats the choices, but not the order of concurrent replies.
//
// All clients use names that no other test uses. A few thousand steps can take seconds on a fast
// store. The store needs readers, permits, and the interfaces driver.Inspector, driver.Resizer and
// driver.Revoker. Otherwise the test is skipped.
func RunHistory(t *testing.T, s driver.Store, seed uint64, steps int) {
	t.Helper()
	full := driver.Complete(s)
	needs(t, full, "Inspector", "Resizer", "Revoker")
	skipWithoutReaders(t, full)
	skipWithoutPermits(t, full)
	history.Run(t, s, history.Plan{Seed: seed, Ops: steps})
}
