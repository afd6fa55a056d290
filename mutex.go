package dibs

import (
	"context"
	"sync"
)

// A Mutex is a name that one holder at a time may have. It holds no state: it is
// cheap to make, safe for concurrent use, and two of the same name are the same.
type Mutex struct {
	c        *Client
	name     string
	settings settings
}

// Mutex returns the mutex of a name. It does no I/O; a bad name or option is told
// by the calls that use it.
func (c *Client) Mutex(name string, options ...Option) *Mutex {
	return &Mutex{c: c, name: name, settings: c.defaults.with(options)}
}

// Lock takes the name, waiting in line until ctx ends or Wait has passed. The
// context bounds the waiting only; the lease lives until Unlock.
//
// If it must give up it returns ErrBusy (which wraps the context's cause), and
// leaves nothing behind: a lock that is granted in this moment is handed on. If
// the store does not answer within the operation timeout it returns
// ErrUnavailable; once it is in the queue it outlasts outages.
func (m *Mutex) Lock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.c.acquire(ctx, exclusive(m.name), m.settings.with(options), queueing)
}

// TryLock takes the name if it is free and nobody is waiting for it, and returns
// ErrBusy at once if not.
func (m *Mutex) TryLock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.c.acquire(ctx, exclusive(m.name), m.settings.with(options), tryOnce)
}

// Do runs fn while holding the name. fn's context ends with ctx, or with the
// lease if that is lost (its cause is ErrLost then), and when fn has returned. The
// name is given back only when fn has returned, or panicked. Do returns fn's error joined with that of
// Unlock: an ErrLost means that fn may have run, in part, without the name.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	return do(ctx, m.Lock, fn, options)
}

// Locker returns the mutex as a sync.Locker, for code that wants one. A Locker
// cannot return errors: Lock panics if ctx ends or the request is invalid, and
// Unlock panics if the lease was lost. Each Locker is held once at a time.
func (m *Mutex) Locker(ctx context.Context, options ...Option) sync.Locker {
	return &locker{m: m, ctx: ctx, options: options}
}

type locker struct {
	m       *Mutex
	ctx     context.Context
	options []Option

	mu    sync.Mutex
	lease *Lease
}

func (l *locker) Lock() {
	lease, err := l.m.Lock(l.ctx, l.options...)
	if err != nil {
		panic(err)
	}
	l.mu.Lock()
	l.lease = lease
	l.mu.Unlock()
}

func (l *locker) Unlock() {
	l.mu.Lock()
	lease := l.lease
	l.lease = nil
	l.mu.Unlock()
	if lease == nil {
		panic("dibs: unlock of an unlocked Locker")
	}
	if err := lease.Unlock(); err != nil {
		panic(err)
	}
}
