package kvstore

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/locktable"
)

// Tables are lock tables that run an operation in a single step, without a race: in memory under a
// mutex, or in a transaction. Over makes a store from them. A key-value service without
// transactions is a Bucket instead: see New.
type Tables interface {
	// Do runs op on the locks of op.Names, at the time of the clock for expiry, and stores the
	// changes. Then it sends the notifications. If Do fails, it changed nothing, or the outcome is
	// unknown. Do returns by op.Deadline.
	Do(ctx context.Context, op *Operation) error

	// Watch is as in driver.Store. busy is not nil.
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
