package storetest

import (
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/history"
)

// RunHistory runs steps random operations of many clients on one store. It records what each client
// saw, and fails the test for what cannot have happened: two holders, a fence that did not grow, or a
// waiter that was overtaken. A name that was refused although it was free fails it as well. A seed
// repeats the choices, but not the order of concurrent replies.
//
// All clients use the names of no other test. A few thousand steps take seconds on a fast store. The
// store needs readers, permits, and the interfaces driver.Inspector, driver.Resizer and
// driver.Revoker. Otherwise the test is skipped.
func RunHistory(t *testing.T, s driver.Store, seed uint64, steps int) {
	t.Helper()
	full := driver.Complete(s)
	needs(t, full, "Inspector", "Resizer", "Revoker")
	skipWithoutReaders(t, full)
	skipWithoutPermits(t, full)
	history.Run(t, s, history.Plan{Seed: seed, Ops: steps})
}
