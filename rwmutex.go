package dibs

import (
	"github.com/dibslock/dibs/driver"
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
