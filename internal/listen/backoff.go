package listen

import (
	"math/rand/v2"
	"time"
)

// A backoff is the pause before the next connection to a server, after connections that could
// not be opened, or ended before the server replied. Calls fail in that time with the last
// error: each of them would open another connection.
type backoff struct {
	err   error
	pause time.Duration // after the next failure; zero after the first one
	until time.Time
}

const (
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// next returns the backoff after one more failure. The pause doubles, with jitter.
func (b backoff) next(err error, now time.Time) backoff {
	return backoff{
		err: err, until: now.Add(b.pause/2 + rand.N(b.pause/2+1)),
		pause: min(max(2*b.pause, firstPause), longestPause),
	}
}

// record records the end of a connection, and whether the server had replied on it. Its
// caller holds the lock.
func (all *Connections) record(server Server, worked bool, now time.Time, err error) {
	if worked {
		delete(all.failed, server)
		return
	}
	if all.failed == nil {
		all.failed = make(map[Server]backoff)
	}
	all.failed[server] = all.failed[server].next(err, now)
}

// refusal returns the error of calls that come before the next connection to a server is due.
// Its caller holds the lock.
func (all *Connections) refusal(server Server, now time.Time) error {
	if b, ok := all.failed[server]; ok && now.Before(b.until) {
		return b.err
	}
	return nil
}
