package dibs

import "context"

import "github.com/dibslock/dibs/driver"

// A Semaphore is a name with a number of permits, of which each holder has some.
// Each permit is a lease: it is renewed, it has a deadline, and it comes back by
// itself when its holder dies. It holds no state, and is safe for concurrent use.
//
// Who asks first is served first, also if it wants many: those behind it do not
// overtake it, even if there would be room for them.
//
// Fences of a semaphore grow like others, but its holders are many at a time: a
// resource that refuses smaller fences would refuse rightful ones.
type Semaphore struct {
	c        *Client
	name     string
	permits  int
	settings settings
}

// Semaphore returns the semaphore of a name with so many permits, from 1 to
// Unlimited. It does no I/O; a bad name, number or option is told by the calls that
// use it.
//
// Each call goes by its own number. While a deployment changes it, the old ones and
// the new ones see the same permits taken, and each enters if that leaves room by its
// own count: never more are held than the larger of the two numbers.
func (c *Client) Semaphore(name string, permits int, options ...Option) *Semaphore {
	return &Semaphore{c: c, name: name, permits: permits, settings: c.defaults.with(options)}
}

// Acquire takes n permits in one lease, or none, waiting in line until ctx ends or
// Wait has passed. More than there are is ErrInvalid at once. All else is as with
// Mutex.Lock; who takes all permits holds the name as a Mutex of it would.
func (s *Semaphore) Acquire(ctx context.Context, n int, options ...Option) (*Lease, error) {
	return s.acquire(ctx, n, options, queueing)
}

// TryAcquire takes n permits if they are free and nobody is waiting for the name, and
// returns ErrBusy at once if not.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, options ...Option) (*Lease, error) {
	return s.acquire(ctx, n, options, tryOnce)
}

func (s *Semaphore) acquire(ctx context.Context, n int, options []Option, once bool) (*Lease, error) {
	switch {
	case s.permits < 1 || s.permits > driver.Unlimited:
		return nil, invalid("semaphore %q of %d permits: not within 1 to %d", s.name, s.permits, driver.Unlimited)
	case n < 1 || n > s.permits:
		return nil, invalid("%d permits of semaphore %q: not within 1 to its %d", n, s.name, s.permits)
	}
	return s.c.acquire(ctx, lockSpec{name: s.name, weight: n, limit: s.permits}, s.settings.with(options), once)
}

// Do runs fn while holding one permit, as Mutex.Do does.
func (s *Semaphore) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	one := func(ctx context.Context, options ...Option) (*Lease, error) { return s.Acquire(ctx, 1, options...) }
	return do(ctx, one, fn, options)
}
