package renew

import (
	"github.com/dibslock/dibs/internal/clock"
	"github.com/dibslock/dibs/internal/load"
)

// A Scheduler is the queue of the leases of a client, and one goroutine that ends them at their
// deadlines and starts their renewals in batches. It never waits for the store, so a store that hangs
// delays no deadline. Deadlines go first; then come the renewals that are due, in the order of
// deadlines, as many as the budget has room for. It is safe for concurrent use.
type Scheduler[H Holder] struct {
	*Queue[H]
	client   Client
	clock    *clock.Clock
	gate     *load.Gate
	flights  flights[H]
	recovery recovery
}

// New returns a scheduler without leases. Run starts it. The gate calls SendMore when there is room
// for renewals again.
func New[H Holder](client Client, c *clock.Clock, gate *load.Gate) *Scheduler[H] {
	return &Scheduler[H]{Queue: newQueue[H](), client: client, clock: c, gate: gate}
}
