package dibs

import (
	"context"
	"time"

	"github.com/dibslock/dibs/driver"
	leasestate "github.com/dibslock/dibs/internal/lease"
)

// An RWMutex is a lock with many readers or one writer. Reader and Writer return the lock that a call
// acquires. The value holds no state, and is safe for concurrent use.
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
// makes the methods of its locks return ErrInvalid.
func (c *Client) RWMutex(name string, options ...Option) *RWMutex {
	return &RWMutex{c: c, name: name, settings: c.settings(options)}
}

// Writer returns the lock for writing.
func (m *RWMutex) Writer() *Mutex {
	return &Mutex{c: m.c, name: m.name, writer: true, settings: m.settings}
}

// Reader returns the lock for reading, beside other readers. A reader queues behind a writer that
// already waits.
func (m *RWMutex) Reader() *SharedLock {
	return &SharedLock{c: m.c, name: m.name, kind: KindReader, weight: 1, limit: driver.Unlimited, settings: m.settings}
}

// Downgrade makes a writer a reader; no other writer can hold the lock in between. The
// readers at the head of the queue enter with it. The lease then has a new and larger
// fence, which Fence(ctx) and Lease.Fence return from then on.
//
// Downgrade returns ErrLost if the lease is lost, ErrReentrant if a nested call uses the
// lease, and ErrUnavailable if the store does not answer. After an ErrUnavailable with an
// unknown outcome the lease is held for reading, although the store may keep other readers
// out. After any ErrUnavailable Downgrade may be called again. Concurrent changes of one lease
// are made one after another.
func (m *RWMutex) Downgrade(ctx context.Context, lease *Lease) error {
	busy, err := m.changeTo(ctx, lease, lockSpec{kind: KindReader, name: m.name, weight: 1, limit: driver.Unlimited})
	if err == nil && busy != nil {
		return lease.l.lose(leasestate.End{Reason: leasestate.Missing})
	}
	return err
}

// TryUpgrade makes a reader the writer if it is the only reader. Otherwise it returns
// ErrBusy at once: two readers that waited for each other would wait for ever. The
// upgrade goes before the waiters, because nobody can have written since this reader
// began. The lease then has a new and larger fence.
//
// After any error the lease is still held for reading. After ErrUnavailable the store may
// keep other readers out until Unlock, Downgrade or another TryUpgrade.
func (m *RWMutex) TryUpgrade(ctx context.Context, lease *Lease) error {
	busy, err := m.changeTo(ctx, lease, writer(m.name))
	if err == nil && busy != nil {
		return busy
	}
	return err
}

// changeTo changes the weight of a lease. A non-nil busy means that other holders prevent it.
func (m *RWMutex) changeTo(ctx context.Context, lease *Lease, w lockSpec) (busy *BusyError, err error) {
	if lease.isZero() {
		return nil, invalid("no lease on %q", m.name)
	}
	r := resize{c: m.c, l: lease.l, to: w, end: time.Now().Add(lease.l.timeout())}
	return r.run(ctx)
}
