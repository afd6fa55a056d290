package dibs

import (
	"context"
	"slices"

	"github.com/dibslock/dibs/driver"
)

// A MultiMutex is a lock on several names, held together or not at all. The value holds no state,
// and is safe for concurrent use.
//
// MultiMutexes with common names never deadlock, whatever the order of their names. A waiting
// MultiMutex is in the wait queue of each name; on a cluster, of each name in the slot it waits
// for.
type MultiMutex struct {
	c        *Client
	names    []string
	settings settings
}

// All returns the MultiMutex for these names: 1 to 100, in any order. A repeated name counts once.
// All does no I/O. With an invalid name or option, the MultiMutex's methods return ErrInvalid.
//
// If the store can acquire all names in one step (memory, a single Redis server, a cluster's hash
// slot), a waiting MultiMutex holds none of them. A process crash then leaves only queue entries.
// If the names are in several slots of a cluster, they are acquired slot by slot, in the same order
// for all clients. While the call waits for a slot, it holds the names in the earlier slots. If the
// call fails, it releases these names.
func (c *Client) All(names []string, options ...Option) *MultiMutex {
	names = slices.Clone(names)
	slices.Sort(names)
	return &MultiMutex{c: c, names: slices.Compact(names), settings: c.settings(options)}
}

// Lock acquires all names in a single lease. If a name is lost or revoked, the whole lease is lost.
// Lease.FenceOf returns each name's fence. Errors and limits are those of Mutex.Lock.
func (m *MultiMutex) Lock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.acquire(ctx, m.settings.with(atCall, options))
}

// TryLock acquires all names if they are free and nobody waits for any of them. Otherwise it
// returns ErrBusy at once.
func (m *MultiMutex) TryLock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.acquire(ctx, m.settings.with(atCall, options).tryOnce())
}

// Do runs fn while holding all names, as Mutex.Do does. FenceOf(ctx, name) returns a name's fence.
func (m *MultiMutex) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	first := ""
	if len(m.names) > 0 {
		first = m.names[0]
	}
	return do(ctx, first, &m.settings, m.acquire, fn, options)
}

func (m *MultiMutex) acquire(ctx context.Context, set settings) (*Lease, error) {
	if err := m.c.check(); err != nil {
		return nil, err
	}
	if n := len(m.names); n == 0 || n > driver.MaxNames {
		return nil, invalid("multi-lock on %d names: not within 1 to %d", n, driver.MaxNames)
	}
	return m.c.acquire(ctx, all(m.c.store.Groups(m.names)), set)
}
