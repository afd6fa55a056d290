package dibs

import (
	"context"

	"github.com/dibslock/dibs/driver"
)

// An RWMutex is a lock with many readers or one writer. The value holds no state, and is
// safe for concurrent use.
//
// It is strictly fair: readers and writers are served in the order of their requests, so
// neither side starves the other. Readers that are next to each other in the queue enter
// together. Each reader has a lease of its own, which expires if its process crashes.
//
// A writer is equivalent to the holder of a Mutex of the same name.
type RWMutex struct {
	c        *Client
	name     string
	settings settings
}

// RWMutex returns the read-write mutex of a name. It does no I/O. A bad name or option
// makes the methods of the RWMutex return ErrInvalid.
func (c *Client) RWMutex(name string, options ...Option) *RWMutex {
	return &RWMutex{c: c, name: name, settings: c.settings(ofLock, options)}
}

func (m *RWMutex) write() lockSpec {
	return lockSpec{kind: KindWriter, name: m.name, weight: driver.Unlimited, limit: driver.Unlimited}
}
func (m *RWMutex) read() lockSpec {
	return lockSpec{kind: KindReader, name: m.name, weight: 1, limit: driver.Unlimited}
}

// Lock acquires the lock exclusively, for writing. Errors and limits are those of
// Mutex.Lock.
func (m *RWMutex) Lock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.lock(ctx, m.settings.with(atCall, options))
}

func (m *RWMutex) lock(ctx context.Context, set settings) (*Lease, error) {
	return m.c.acquire(ctx, m.write(), set)
}

// TryLock acquires the lock for writing if it is free and no one waits for it. Otherwise
// it returns ErrBusy at once.
func (m *RWMutex) TryLock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.c.acquire(ctx, m.write(), m.settings.with(atCall, options).tryOnce())
}

// RLock acquires the lock shared, for reading, beside other readers. It queues behind a
// writer that already waits. Errors and limits are those of Mutex.Lock.
func (m *RWMutex) RLock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.rlock(ctx, m.settings.with(atCall, options))
}

func (m *RWMutex) rlock(ctx context.Context, set settings) (*Lease, error) {
	return m.c.acquire(ctx, m.read(), set)
}

// TryRLock acquires the lock for reading if no writer holds it and no one waits for it.
// Otherwise it returns ErrBusy at once.
func (m *RWMutex) TryRLock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.c.acquire(ctx, m.read(), m.settings.with(atCall, options).tryOnce())
}

// Do runs fn while holding the lock for writing, as Mutex.Do does.
func (m *RWMutex) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	return do(ctx, m.name, &m.settings, m.lock, fn, options)
}

// Reading returns the mutex as a Doer that holds the lock for reading:
//
//	err := locks.RWMutex("prices").Reading().Do(ctx, show)
func (m *RWMutex) Reading() Doer { return reading{m} }

type reading struct{ m *RWMutex }

func (r reading) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	return do(ctx, r.m.name, &r.m.settings, r.m.rlock, fn, options)
}
