package pipeline

import (
	"slices"
	"time"
)

// A congestion limits how many requests are in flight. On a narrow link, requests delay each other.
// If they take longer than their callers wait, every request is wasted, and so is every retry. So
// requests wait here, until they can be answered in time or can never be.
//
// The signal is the difference between the duration of an exchange and the shortest recent one: the
// time that requests waited behind others. A long link that is not narrow does not show it.
type congestion struct {
	limit  int           // maximum number of requests in flight; zero: no limit
	sent   int           // requests on their way
	sentAt time.Time     // when the last requests in flight were sent
	took   time.Duration // duration of the last exchange while limited
}

const (
	congestedAfter = 200 * time.Millisecond // waiting time
	relaxedBelow   = 100 * time.Millisecond
	mostLimited    = 4 * maxBatch // with a larger limit, there is none
)

// room returns how many more requests can be sent. It is at least 1 if none is in flight, or if
// none was sent recently: the connections in use may hang.
func (c *congestion) room() int {
	switch {
	case c.limit == 0:
		return maxBatch
	case c.limit > c.sent:
		return c.limit - c.sent
	case c.sent == 0 || time.Since(c.sentAt) > congestedAfter:
		return 1
	}
	return 0
}

// inTime reports whether a request that is sent now can be answered before the limit.
func (c *congestion) inTime(now, until time.Time) bool {
	return c.limit == 0 || until.Sub(now) > c.took
}

// mustWait reports whether no queued request should be sent now: there is no room, or none can be
// answered in time. This changes when an exchange ends, or when the connections in use may hang.
func (c *congestion) mustWait(queue []*Request, now time.Time) bool {
	if c.limit == 0 || c.sent == 0 || now.Sub(c.sentAt) > congestedAfter {
		return false
	}
	return c.room() == 0 || !slices.ContainsFunc(queue, func(r *Request) bool { return c.inTime(now, r.until) })
}

// record records an exchange that took some time, of which least is the distance to the server.
func (c *congestion) record(requests int, took, least time.Duration, timedOut bool) {
	switch waited := took - least; {
	case timedOut || waited > congestedAfter:
		c.limit = max(min(max(c.sent, requests), c.limitOr(mostLimited))/2, 1)
	case c.limit == 0:
		return
	case waited < relaxedBelow && requests >= min(c.limit, maxBatch):
		c.limit *= 2
	case waited < relaxedBelow:
		c.limit++
	}
	c.took = took
	if c.limit >= mostLimited {
		*c = congestion{sent: c.sent, sentAt: c.sentAt}
	}
}

func (c *congestion) limitOr(none int) int {
	if c.limit == 0 {
		return none
	}
	return c.limit
}
