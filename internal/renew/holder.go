package renew

import (
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/lease"
	"github.com/dibslock/dibs/internal/load"
)

// A Holder is a lease in a Scheduler: a State with its lock, and the consequences of its
// transitions. LockState locks it, and UnlockState or Commit unlocks it.
type Holder interface {
	comparable

	// Place returns the lease's place in the scheduler's queue.
	Place() *Place

	// LockState locks the lease and returns its state.
	LockState() *lease.State

	// UnlockState unlocks a lease without consequences.
	UnlockState()

	// Commit applies a transition's consequences and unlocks the lease. It sets a held lease's next
	// action, and removes an ended lease. It reports whether the lease is held.
	Commit() bool

	// IsObserved reports whether anybody is interested in failed renewals.
	IsObserved() bool

	// RenewFailed reports a renewal that failed or has no answer. The lease is not locked.
	RenewFailed()

	// Renewed reports a successful renewal. The lease is not locked.
	Renewed()
}

// A Client is the client whose leases are renewed. It is safe for concurrent use.
type Client interface {
	// Identity returns the client's identity.
	Identity() string

	// Go runs a job in the background. It returns false if the client has ended.
	Go(job func()) bool

	// Extend sends requests, which must be answered before the limit. It returns each result, and
	// their common implication for the store.
	Extend(until time.Time, requests []driver.ExtendRequest) ([]error, load.Outcome)

	// Renewed reports a batch of renewed leases, and the headroom of the lease nearest to its loss.
	// It must not block.
	Renewed(leases int, took time.Duration, headroom float64)
}
