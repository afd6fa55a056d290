package pipeline

import (
	"time"

	"github.com/dibslock/dibs/internal/load"
)

// An outage limits what a pipeline sends to a server that does not answer, or that ends
// connections. A late exchange occupies no worker, because its connection may have ended silently.
// But each further exchange may open another connection to a server that is only paused. So further
// exchanges are probes: sent singly, small, with growing pauses. A reply shows that the server is
// back. Then a single worker begins, and each fast reply adds another worker, so that a thousand
// clients that return together open a connection each, not four.
type outage struct {
	late     int           // exchanges in progress whose replies are late
	doubt    bool          // a reply is late, and none has come since
	withheld int           // workers that must not be used
	distance time.Duration // the last known round trip
	took     time.Duration // duration of the last answered exchange, or half the duration of a longer one before it
	inTime   int           // replies in time since a worker was added
	refuses  bool          // the server has refused the last script call

	refusals, silence load.Backoff
	resumeAt          time.Time // no exchange begins before, or zero
	lateAwaited       int       // late exchanges whose callers still wait
	silentUntil       time.Time // end of the pause, while a pause is in effect; a later call is not delayed
	crowdedUntil      time.Time // the same, while maxExchanges are in progress
	crowded           int       // such pauses since the last reply
}

const (
	maxExchanges = maxWorkers + 1 // in progress, not counting those that hang for very long
	probeBatch   = 8              // requests in a probe
	slowStart    = 8              // replies that add a worker, if they are neither fast nor late

	// A reply is late after several round trips. A new connection takes up to four round trips, and
	// two more with TLS.
	roundTripsLate = 6
	shortestLate   = 200 * time.Millisecond
	unknownLate    = time.Second // before a round trip is known

	// crowdedPause is the pause before an exchange beside maxExchanges that hang. It doubles
	// each time: a connection that is being opened can hang for minutes.
	crowdedPause = 4 * time.Second
)

// A service describes how the server answered the script calls in an exchange.
type service uint8

const (
	notAsked service = iota // there was none, or no answer
	served
	refused // for a while: it loads its data, for example
)

func newOutage() outage {
	return outage{
		// A call waits up to a second, so at least one attempt falls into that time. go-redis waits
		// half a second for a server that refuses connections.
		refusals: load.Backoff{Shortest: time.Millisecond, Longest: 500 * time.Millisecond, Part: 8},
		silence:  load.Backoff{Shortest: 300 * time.Millisecond, Longest: 2 * time.Second, Part: 2},
	}
}

// lateAfter returns the time after which a reply is late. It is a multiple of the round trip, so
// that a long link does not look like an outage.
func (o *outage) lateAfter() time.Duration {
	if o.distance == 0 {
		return unknownLate
	}
	return max(roundTripsLate*o.distance, shortestLate)
}

// allowed returns how many workers there may be.
func (o *outage) allowed() int { return maxWorkers - o.withheld }

// quota returns how many requests the next exchange may have.
func (o *outage) quota() int {
	if o.doubt {
		return probeBatch
	}
	return maxBatch
}

// recordLate records that the reply to an exchange is late while other workers are running.
func (o *outage) recordLate(workers int, now time.Time) {
	o.late++
	o.doubt, o.withheld, o.inTime = true, maxWorkers-1, 0
	o.silentUntil = now.Add(o.silence.Next(now))
	if workers == 0 && o.late >= maxExchanges {
		o.crowdedUntil = now.Add(crowdedPause << min(o.crowded, 10))
		o.crowded++
	}
}

// recordFailure records that a connection could not be opened, or has ended.
func (o *outage) recordFailure(now time.Time) {
	o.withheld, o.inTime = maxWorkers-1, 0
	o.resumeAt = now.Add(o.refusals.Next(now))
}

// recordReply records that a reply arrived after a given time, late or not. A server that is
// loading its data replies at once but refuses script calls. Then a single worker is enough,
// because further workers would only open connections for refused calls.
func (o *outage) recordReply(took time.Duration, late bool, scripts service) {
	o.took = max(took, o.took/2)
	o.doubt, o.resumeAt, o.silentUntil, o.crowdedUntil, o.crowded = false, time.Time{}, time.Time{}, time.Time{}, 0
	if late {
		return
	}
	o.refusals.Reset()
	o.silence.Reset()
	switch scripts {
	case refused:
		o.refuses, o.withheld, o.inTime = true, maxWorkers-1, 0
		return
	case served:
		o.refuses = false
	}
	if o.inTime++; o.withheld > 0 && !o.refuses && (o.inTime >= slowStart || took <= max(2*o.distance, fastReply)) {
		o.withheld--
		o.inTime = 0
	}
}

// resumesAt returns before which time no exchange may begin beside some workers, or zero.
func (o *outage) resumesAt(workers int) time.Time {
	if workers+o.late >= maxExchanges && o.crowdedUntil.After(o.resumeAt) {
		return o.crowdedUntil
	}
	if o.lateAwaited > 0 && o.silentUntil.After(o.resumeAt) {
		return o.silentUntil
	}
	return o.resumeAt
}

// paused reports whether no exchange may begin now beside some workers.
func (o *outage) paused(workers int) bool {
	at := o.resumesAt(workers)
	return !at.IsZero() && time.Now().Before(at)
}

// forbids reports whether another worker must not begin an exchange.
func (o *outage) forbids(workers int) bool { return workers > o.allowed() || o.paused(workers-1) }
