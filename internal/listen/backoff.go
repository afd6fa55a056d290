package listen

import (
	"time"

	"github.com/dibslock/dibs/internal/load"
)

// A failure is a server to which connections could not be opened, or ended before the server
// replied. Calls fail with the last error until the next connection is due: each of them would
// open another one.
type failure struct {
	err     error
	backoff load.Backoff
	until   time.Time
}

// record records the end of a connection, and whether the server had replied on it. Its
// caller holds the lock.
func (all *Connections) record(server Server, worked bool, now time.Time, err error) {
	if worked {
		delete(all.failed, server)
		return
	}
	f := all.failed[server]
	if f == nil {
		f = &failure{backoff: load.Backoff{Shortest: 50 * time.Millisecond, Longest: time.Second, Part: 2}}
		if all.failed == nil {
			all.failed = make(map[Server]*failure)
		}
		all.failed[server] = f
	}
	again := f.backoff.Failing() // else it may be the end of an old connection only
	pause := f.backoff.Next(now)
	if f.err = err; again {
		f.until = now.Add(pause)
	}
}

// refusal returns the error of calls that come before the next connection to a server is due.
// Its caller holds the lock.
func (all *Connections) refusal(server Server, now time.Time) error {
	if f := all.failed[server]; f != nil && now.Before(f.until) {
		return f.err
	}
	return nil
}
