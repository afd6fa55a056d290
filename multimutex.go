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
// MultiMutex is in the wait queue of each name. If the store acquires the names in several steps,
// it is in the queues of the current step's names: see [Client.All].
type MultiMutex struct {
	c        *Client
	names    []string
	settings settings
}

// All returns the MultiMutex for these names: 1 to 100, in any order. A repeated name counts once.
// All does no I/O. With an invalid name or option, the MultiMutex's methods return ErrInvalid.
//
// A store in memory, in a file, in a SQL database, or on a single Redis server acquires all names
// in one step. So does a cluster for names in the same hash slot. A waiting MultiMutex then holds
// none of its names, and a process crash leaves only queue entries.
//
// Other stores acquire the names in several steps, in the same order for all clients. A cluster
// acquires them slot by slot. A quorum, and a kvstore.Store over a Bucket, acquire them one by one,
// in sorted order. While the call waits for a name, it holds the names from earlier steps. If the
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
