package dibs

import (
	"context"

	"github.com/dibslock/dibs/driver"
)

// A SharedLock is a lock that several holders share: an RWMutex's reader, or some permits of a
// Semaphore. Each holder has its own lease, which expires if its process crashes. The value holds
// no state, and is safe for concurrent use.
//
// Each shared lease has a fence larger than all earlier fences. But a resource must not reject a
// holder's smaller fence, because several holders are valid at the same time.
type SharedLock struct {
	c             *Client
	name          string
	kind          Kind
	weight, limit int
	settings      settings
}

// Lock acquires the lock, shared with its other holders. It queues until the lock is granted, ctx
// ends, or Wait passes. Errors and limits are those of Mutex.Lock.
func (l *SharedLock) Lock(ctx context.Context, options ...Option) (*Lease, error) {
	return l.lock(ctx, l.settings.with(atCall, options))
}

// TryLock acquires the lock if it can be shared now and nobody waits for the name. Otherwise it
// returns ErrBusy at once.
func (l *SharedLock) TryLock(ctx context.Context, options ...Option) (*Lease, error) {
	return l.lock(ctx, l.settings.with(atCall, options).tryOnce())
}

// Do runs fn while holding the lock, as Mutex.Do does.
func (l *SharedLock) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	return do(ctx, l.name, &l.settings, l.lock, fn, options)
}

func (l *SharedLock) lock(ctx context.Context, set settings) (*Lease, error) {
	switch {
	case l.limit < 1 || l.limit > driver.Unlimited:
		return nil, invalid("semaphore %q of %d permits: not within 1 to %d", l.name, l.limit, driver.Unlimited)
	case l.weight < 1 || l.weight > l.limit:
		return nil, invalid("%d permits of semaphore %q: not within 1 to its %d", l.weight, l.name, l.limit)
	}
	return l.c.acquire(ctx, lockSpec{kind: l.kind, name: l.name, weight: l.weight, limit: l.limit}, set)
}
