package renew

import (
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/lease"
	"github.com/dibslock/dibs/internal/load"
)

// A Holder is a lease of a Scheduler: a State with its lock, and what follows from its transitions.
// LockState locks it, and UnlockState or Commit unlocks it.
type Holder interface {
	comparable

	// Place returns the place in the queue of the scheduler.
	Place() *Place

	// LockState locks the lease and returns its state.
	LockState() *lease.State

	// UnlockState unlocks a lease from whose state nothing has to follow.
	UnlockState()

	// Commit does what follows from a transition, and unlocks the lease. It sets the next action of a
	// lease that is held, and removes one that has ended. It reports whether the lease is held.
	Commit() bool

	// IsObserved reports whether anybody wants to know of a renewal that fails.
	IsObserved() bool

	// RenewFailed reports a renewal that has failed or has no answer. The lease is not locked.
	RenewFailed()

	// Renewed reports a renewal that has succeeded. The lease is not locked.
	Renewed()
}

// A Client is the client whose leases are renewed. It is safe for concurrent use.
type Client interface {
	// Identity returns the identity of the client.
	Identity() string

	// Go runs a job in the background. It returns false if the client has ended.
	Go(job func()) bool

	// Extend sends requests, which must be answered until then. It returns the result of each, and
	// what all of them say of the store.
	Extend(until time.Time, requests []driver.ExtendRequest) ([]error, load.Outcome)

	// Renewed reports a batch of leases that were renewed, and the headroom of the one that was
	// nearest to its loss. It must not block.
	Renewed(leases int, took time.Duration, headroom float64)
}
