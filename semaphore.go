package dibs

// A Semaphore is a lock with several permits, which its holders share. Permits(n) returns the lock
// for n permits; its method Lock acquires them. A Semaphore holds no state, and is safe for
// concurrent use.
//
// Requests are served in order, including large ones: later requests do not overtake a large
// request, even if enough permits for them are free.
type Semaphore struct {
	c        *Client
	name     string
	permits  int
	settings settings
}

// Semaphore returns the semaphore with this name and this many permits, from 1 to 2^31-1. It does
// no I/O. With an invalid name, number or option, its locks' methods return ErrInvalid.
//
// The store records the held permits, but not the semaphore's number of permits. Each process
// compares the held permits with its own number, so all processes should use the same number. While
// a deployment changes the number, the held permits never exceed the larger number.
func (c *Client) Semaphore(name string, permits int, options ...Option) *Semaphore {
	return &Semaphore{c: c, name: name, permits: permits, settings: c.settings(options)}
}

// Permits returns the lock for n permits, acquired together in a single lease. n is from 1 to the
// semaphore's permits; any other n makes its methods return ErrInvalid. A holder of all permits
// holds the name exclusively, as a Mutex does.
func (s *Semaphore) Permits(n int) *SharedLock {
	return &SharedLock{c: s.c, name: s.name, kind: KindSemaphore, weight: n, limit: s.permits, settings: s.settings}
}
