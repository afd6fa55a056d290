package dibs

import (
	"context"
	"sync"
)

// A Mutex is a lock with one holder at a time. So is the writer of an RWMutex. The value holds no state: it is cheap to
// create, safe for concurrent use, and two Mutexes of one name are the same lock.
type Mutex struct {
	c        *Client
	name     string
	writer   bool // of an RWMutex
	settings settings
}

// Mutex returns the mutex of a name. It does no I/O. A bad name or option makes the
// methods of the Mutex return ErrInvalid.
func (c *Client) Mutex(name string, options ...Option) *Mutex {
	return &Mutex{c: c, name: name, settings: c.settings(options)}
}

// Lock acquires the mutex. It queues until the lock is granted, ctx ends, or Wait has
// passed. The context limits the waiting only; the lease lasts until Unlock.
//
// Lock does not change ctx. Pass Lease.Context to nested calls: with ctx itself, a second
// Lock of the same name waits for the first one.
//
// Lock returns ErrBusy if the waiting is over; errors.Is also finds the context's cause
// if the context ended it. It leaves nothing behind: in the background it removes its queue
// entry, and releases a lock that is granted at that moment. Lock returns ErrUnavailable if the store does not answer its
// first request within the operation timeout, or rejects it. After that the call survives
// outages, and a store that rejects its requests: only Wait, ctx and Close end it, and a
// program that closes the connections of the store.
func (m *Mutex) Lock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.lock(ctx, m.settings.with(atCall, options))
}

func (m *Mutex) lock(ctx context.Context, set settings) (*Lease, error) {
	return m.c.acquire(ctx, m.spec(), set)
}

func (m *Mutex) spec() lockSpec {
	if m.writer {
		return writer(m.name)
	}
	return exclusive(KindMutex, m.name)
}

// TryLock acquires the mutex if it is free and no one waits for it. Otherwise it returns
// ErrBusy at once.
func (m *Mutex) TryLock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.lock(ctx, m.settings.with(atCall, options).tryOnce())
}

// Do runs fn while holding the mutex. The context of fn ends with ctx, when the lease is
// lost (with cause ErrLost), and when fn has returned. Do releases the lock only after fn
// has returned or panicked.
//
// The error of Do is a *DoError. It says whether fn ran, and has the error of fn and that of the
// lock, so fn need not report a loss. ErrLost as the error of the lock means that part of fn may have
// run without the lock. fn gets its lease with LeaseOf.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	return do(ctx, m.name, &m.settings, m.lock, fn, options)
}

// Locker returns the mutex as a sync.Locker, for code that requires one. A Locker cannot
// return errors: Lock panics if ctx ends or the request is invalid, and Unlock panics if
// the lease was lost. A Locker holds one lease at a time. The option OwnerToken, which is for one
// call, is invalid.
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
	if err := checkOfMany("Locker", l.options); err != nil {
		panic(err)
	}
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
