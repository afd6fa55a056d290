package dibs

// A Semaphore is a lock with a number of permits that its holders share. Permits returns the lock
// that a call acquires. The value holds no state, and is safe for concurrent use.
//
// Requests are served in their order, also large ones: later requests do not overtake a
// large request, even if there are enough permits for them.
type Semaphore struct {
	c        *Client
	name     string
	permits  int
	settings settings
}

// Semaphore returns the semaphore of a name with this many permits, from 1 to 2^31-1. It
// does no I/O. A bad name, number or option makes the methods of its locks return
// ErrInvalid.
//
// Each call uses its own number of permits. While a deployment changes the number, old
// and new processes count the same held permits, and each compares them with its own
// number. So the held permits never exceed the larger number.
func (c *Client) Semaphore(name string, permits int, options ...Option) *Semaphore {
	return &Semaphore{c: c, name: name, permits: permits, settings: c.settings(options)}
}

// Permits returns the lock that is n permits in one lease, or none. More permits than the semaphore
// has are ErrInvalid. A holder of all permits holds the name exclusively, as a Mutex does.
func (s *Semaphore) Permits(n int) *SharedLock {
	return &SharedLock{c: s.c, name: s.name, kind: KindSemaphore, weight: n, limit: s.permits, settings: s.settings}
}
