package dibs

import (
	"context"
	"sync"
)

// A Mutex is a lock with a single holder at a time. An RWMutex's writer is also a Mutex. The value
// holds no state: it is cheap to create, safe for concurrent use, and two Mutexes with the same
// name are the same lock.
type Mutex struct {
	c        *Client
	name     string
	writer   bool // for an RWMutex
	settings settings
}

// Mutex returns the mutex with this name. It does no I/O. With an invalid name or option, the
// Mutex's methods return ErrInvalid.
func (c *Client) Mutex(name string, options ...Option) *Mutex {
	return &Mutex{c: c, name: name, settings: c.settings(options)}
}

// Lock acquires the mutex. It queues until the lock is granted, ctx ends, or Wait passes. ctx
// limits only the wait; the lease lasts until Unlock.
//
// Lock does not change ctx. Pass Lease.Context to nested calls, because it carries the lease. With
// ctx itself, a second Lock on the same name waits until the first lease ends.
//
// Lock returns ErrBusy if the wait ends without the lock; if ctx ended it, errors.Is also finds
// ctx's cause. The call leaves nothing behind: in the background it removes its queue entry, and
// releases a lock granted at that moment.
//
// Lock returns ErrUnavailable if the store rejects the first request, or does not answer it within
// the operation timeout. After the first answer, the call survives outages and rejections. Then
// only Wait, ctx, Close, or closing the store's connections ends it.
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

// TryLock acquires the mutex if it is free and nobody waits for it. Otherwise it returns ErrBusy at
// once.
func (m *Mutex) TryLock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.lock(ctx, m.settings.with(atCall, options).tryOnce())
}

// Do runs fn while holding the mutex. fn's context ends with ctx, when the lease is lost (with
// cause ErrLost), and when fn returns. Do releases the lock only after fn returned or panicked. fn
// can get its lease with LeaseOf.
//
// The error is a *DoError. It reports whether fn ran, and contains fn's error and the lock's, so fn
// need not report a loss. If the lock's error is ErrLost, part of fn may have run without the lock.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	return do(ctx, m.name, &m.settings, m.lock, fn, options)
}

// Locker returns the mutex as a sync.Locker, for code that requires this interface. A Locker cannot
// return errors: Lock panics with any error, such as ErrBusy after ctx ended. Unlock panics if the
// lease was lost or the release failed. A Locker holds a single lease at a time. With OwnerToken,
// which is for a single call, Lock panics. New code should use Do.
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
