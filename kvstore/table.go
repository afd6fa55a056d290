package kvstore

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/locktable"
)

// Tables store the locks, their holders and wait queues. They run each operation atomically: in
// memory under a mutex, or in a transaction. Over makes a store from Tables. For a key-value
// service without transactions, implement a Bucket instead: see New.
type Tables interface {
	// Do calls op.Run with the locks on op.Names and the time, and stores the changes. All clients
	// must use the same clock for this time, because leases expire by it. Then Do sends the
	// notifications. If Do returns an error, it changed nothing, or the outcome is unknown. Do returns
	// at op.Deadline at the latest.
	Do(ctx context.Context, op *Operation) error

	// Watch has the same contract as driver.Store's Watch. busy is never nil.
	Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error
}

// noTables take the place of missing Tables.
type noTables struct{ reason string }

// Do implements Tables.
func (t noTables) Do(_ context.Context, o *Operation) error {
	return fmt.Errorf("%w: %s: %s", driver.ErrInvalid, o.Verb(), t.reason)
}

// Watch implements Tables.
func (t noTables) Watch(context.Context, string, func() bool, func(driver.Event)) error {
	return fmt.Errorf("%w: watch: %s", driver.ErrInvalid, t.reason)
}

// These types are the lock table: plain data, with the rules of locking.
type (
	// A Table is the state of all names, or only of an operation's names.
	Table = locktable.Table
	// A Lock is a name's state.
	Lock = locktable.Lock
	// A Holder is a lease on a name.
	Holder = locktable.Holder
	// A Waiter is a queue entry.
	Waiter = locktable.Waiter
	// Now is an operation's time.
	Now = locktable.Now
	// A Notification is an event for a client.
	Notification = locktable.Notification
	// An OwnerState is the known state of a lease's owner.
	OwnerState = locktable.OwnerState
)

// An owner's states.
const (
	Unknown = locktable.Unknown
	Alive   = locktable.Alive
	Dead    = locktable.Dead
)

// NewTable returns an empty lock table.
func NewTable() *Table { return locktable.New() }
