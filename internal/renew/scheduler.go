package renew

import (
	"github.com/dibslock/dibs/driver/bootclock"
	"github.com/dibslock/dibs/internal/load"
)

// A Scheduler consists of a client's lease queue and a goroutine, which ends leases at their
// deadlines and starts renewals in batches. It never waits for the store, so a hanging store delays
// no deadline. Deadlines come first, then due renewals in order of their deadlines, as many as the
// budget permits. It is safe for concurrent use.
type Scheduler[H Holder] struct {
	*Queue[H]
	client   Client
	clock    *bootclock.Clock
	gate     *load.Gate
	flights  flights[H]
	recovery recovery
}

// New returns a scheduler without leases. Run starts it. The gate calls SendMore when there is room
// for renewals again.
func New[H Holder](client Client, c *bootclock.Clock, gate *load.Gate) *Scheduler[H] {
	return &Scheduler[H]{Queue: newQueue[H](), client: client, clock: c, gate: gate}
}
