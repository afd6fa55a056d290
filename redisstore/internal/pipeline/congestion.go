package pipeline

import (
	"slices"
	"time"
)

// A congestion limits how many requests are on their way to the server. Over a narrow link
// requests delay each other. When they take longer than their callers wait, all of them are in
// vain, and so are their repetitions. So a request waits here instead, from where it is sent as
// soon as it can be answered in time, or never.
//
// The signal is how much longer an exchange took than the shortest one did lately: the time
// that its requests waited for others. A link that is long, but not narrow, does not show it.
type congestion struct {
	limit  int           // of requests on their way, or zero: no limit
	sent   int           // requests on their way
	sentAt time.Time     // when the last ones of them were sent
	took   time.Duration // the last exchange of a limited pipeline
}

const (
	congestedAfter = 200 * time.Millisecond // of waiting
	relaxedBelow   = 100 * time.Millisecond
	mostLimited    = 4 * maxBatch // with a larger limit, there is none
)

// room returns how many more requests may be sent. It is at least one if none is on its way, or
// if none was sent for a while: the connections of those on their way may hang.
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

// inTime reports whether a request that is sent now can be answered until a time.
func (c *congestion) inTime(now, until time.Time) bool {
	return c.limit == 0 || until.Sub(now) > c.took
}

// mustWait reports whether none of the queued requests may be sent now: there is no room, or
// none can be answered in time. That changes with an exchange that ends, or when those on their
// way may hang.
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
