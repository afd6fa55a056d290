package dibs

import "context"

import "github.com/dibslock/dibs/driver"

// A Semaphore is a lock with a number of permits that its holders share. The permits of
// one Acquire are one lease: it is renewed, has a deadline, and expires if its process
// crashes. The value holds no state, and is safe for concurrent use.
//
// Requests are served in their order, also large ones: later requests do not overtake a
// large request, even if there are enough permits for them.
//
// The fences of a semaphore grow, too. But a resource must not reject smaller fences,
// because several holders are valid at the same time.
type Semaphore struct {
	c        *Client
	name     string
	permits  int
	settings settings
}

// Semaphore returns the semaphore of a name with this many permits, from 1 to 2^31-1. It
// does no I/O. A bad name, number or option makes the methods of the Semaphore return
// ErrInvalid.
//
// Each call uses its own number of permits. While a deployment changes the number, old
// and new processes count the same held permits, and each compares them with its own
// number. So the held permits never exceed the larger number.
func (c *Client) Semaphore(name string, permits int, options ...Option) *Semaphore {
	return &Semaphore{c: c, name: name, permits: permits, settings: c.settings(ofLock, options)}
}

// Acquire acquires n permits in one lease, or none. It queues until they are granted, ctx
// ends, or Wait has passed. More permits than the semaphore has are ErrInvalid. A holder
// of all permits holds the name exclusively, as a Mutex does. Errors and limits are those
// of Mutex.Lock.
func (s *Semaphore) Acquire(ctx context.Context, n int, options ...Option) (*Lease, error) {
	return s.acquire(ctx, n, s.settings.with(atCall, options))
}

// TryAcquire acquires n permits if they are free and no one waits for the name. Otherwise
// it returns ErrBusy at once.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, options ...Option) (*Lease, error) {
	return s.acquire(ctx, n, s.settings.with(atCall, options).tryOnce())
}

func (s *Semaphore) acquire(ctx context.Context, n int, set settings) (*Lease, error) {
	switch {
	case s.permits < 1 || s.permits > driver.Unlimited:
		return nil, invalid("semaphore %q of %d permits: not within 1 to %d", s.name, s.permits, driver.Unlimited)
	case n < 1 || n > s.permits:
		return nil, invalid("%d permits of semaphore %q: not within 1 to its %d", n, s.name, s.permits)
	}
	return s.c.acquire(ctx, lockSpec{kind: KindSemaphore, name: s.name, weight: n, limit: s.permits}, set)
}

// Do runs fn while holding one permit, as Mutex.Do does.
func (s *Semaphore) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	one := func(ctx context.Context, set settings) (*Lease, error) { return s.acquire(ctx, 1, set) }
	return do(ctx, s.name, &s.settings, one, fn, options)
}
