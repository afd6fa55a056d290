package dibs

import (
	"github.com/dibslock/dibs/driver"
)

// An RWMutex is a lock with many readers or a single writer. Reader and Writer return the locks
// that calls acquire. The value holds no state, and is safe for concurrent use.
//
// It is strictly fair: readers and writers are served in request order, so neither side starves the
// other. Readers next to each other in the queue enter together. Each reader has its own lease,
// which expires if its process crashes.
//
// A writer is equivalent to the holder of a Mutex with the same name.
type RWMutex struct {
	c        *Client
	name     string
	settings settings
}

// RWMutex returns the read-write mutex with this name. It does no I/O. With an invalid name or
// option, its locks' methods return ErrInvalid.
func (c *Client) RWMutex(name string, options ...Option) *RWMutex {
	return &RWMutex{c: c, name: name, settings: c.settings(options)}
}

// Writer returns the lock for writing.
func (m *RWMutex) Writer() *Mutex {
	return &Mutex{c: m.c, name: m.name, writer: true, settings: m.settings}
}

// Reader returns the lock for reading, shared with other readers. A reader queues behind a writer
// that already waits.
func (m *RWMutex) Reader() *SharedLock {
	return &SharedLock{c: m.c, name: m.name, kind: KindReader, weight: 1, limit: driver.Unlimited, settings: m.settings}
}
