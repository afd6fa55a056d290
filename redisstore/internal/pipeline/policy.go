package pipeline

import (
	"time"

	"github.com/dibslock/dibs/redisstore/internal/wire"
)

// A policy decides how requests are sent: by which goroutine, and how many together. It contains
// all heuristics and their limits, and does no I/O.
type policy struct {
	prompt         bool       // the Conn returns soon after the time until which a caller waits
	workers        int        // sending now, including callers
	taking         int        // workers about to take queued requests
	others         recentMean // number of requests in progress when another arrived
	fast           bool       // the last exchange succeeded, within fastReply
	roundTrip      recentLeast
	skipCoalescing int           // remaining requests that are not coalesced
	unknown        wire.JoinSet  // kinds whose script the server recently did not know
	ownDelay       time.Duration // delay of a reply that this process itself may cause
	congestion     congestion
	outage         outage
}

const (
	maxWorkers = 4   // exchanges whose replies are not late; more would only divide the batches
	maxBatch   = 128 // requests; the server executes a batch without a pause
	minBatch   = 4   // a worker takes at least as many, if they are queued
	nearBatch  = 8   // for a near server; a worker takes half the requests if there are fewer than two batches

	fewOthers     = 8                      // with more requests in progress on average, callers do not send directly
	fastReply     = 10 * time.Millisecond  // a server that replies within this is fast
	slowReply     = 80 * time.Millisecond  // a server whose refusal takes this long gets small scripts
	directTimeout = 100 * time.Millisecond // for a caller that sends its own request

	// A server is near if a round trip to it takes less than nearReply, beside requestTime
	// for each request. Then an exchange costs more processor time than it waits.
	nearReply   = 150 * time.Microsecond
	requestTime = 5 * time.Microsecond
	fewRequests = 4 // in flight to a near server; at this number, further requests wait

	// lateReply is after which time requests do not wait for an exchange any longer: its
	// connection may be broken.
	lateReply = 5 * time.Millisecond

	// coalescePause is the number of requests that are not coalesced after a mostly contended
	// batch. Such a batch needs a second round trip.
	coalescePause = 256
)

// addWorker reports whether another worker can send, and counts it. No worker is needed if another
// is about to take the queued requests.
func (p *policy) addWorker(queued, inFlight int) bool {
	if p.workers >= p.outage.allowed() || p.taking > 0 || !p.maySend(queued, inFlight) {
		return false
	}
	p.workers++
	p.taking++
	return true
}

// maySend reports whether an exchange can begin beside those in flight. With a near server, a batch
// waits until it is as large as the batch in flight. So the client and the server both work, each
// on half the requests, and a small number of exchanges saves time for both.
func (p *policy) maySend(queued, inFlight int) bool {
	return p.congestion.room() > 0 && p.mayOverlap(queued, inFlight)
}

func (p *policy) mayOverlap(queued, inFlight int) bool {
	return inFlight <= fewRequests || queued >= min(inFlight, nearBatch) || !p.near()
}

// near reports whether the server is near.
func (p *policy) near() bool { return p.roundTrip.below(nearReply) }

// addDirect reports whether a caller can send its own request, and counts it as a worker. This
// avoids two goroutine switches, which cost more than all other work for a lock. It suits a fast
// server and few callers: many callers should share batches, which cost less.
func (p *policy) addDirect(queued, inFlight int) bool {
	p.others.add(queued + max(inFlight, p.workers))
	if !p.prompt || !p.fast || queued > 0 || p.workers >= p.outage.allowed() || p.outage.doubt || p.others.exceeds(fewOthers) {
		return false
	}
	p.workers++
	return true
}

func (p *policy) removeWorker() { p.workers-- }

// quota returns how many queued requests a worker should send: while the server processes a batch,
// the client prepares the next.
func (p *policy) quota(queued, inFlight int) int {
	workers := p.outage.allowed()
	part, least := (queued+inFlight+workers-1)/workers, minBatch
	if p.near() {
		least = max(least, min(nearBatch, (queued+inFlight+1)/2))
	}
	return min(queued, max(part, least), maxBatch, p.congestion.room(), p.outage.quota())
}

// lateAfter returns after which time a reply is late.
func (p *policy) lateAfter() time.Duration {
	if p.congestion.limit > 0 {
		return max(p.outage.lateAfter(), 3*p.outage.took) // exchanges differ in size
	}
	return p.outage.lateAfter()
}

// recordLate records that the reply to a worker's exchange is late. The worker's place is free.
func (p *policy) recordLate(now time.Time) {
	p.workers--
	p.outage.recordLate(p.workers, now)
}

// recordConnection records whether the connection for an exchange worked.
func (p *policy) recordConnection(worked bool, took time.Duration, scripts service, now time.Time) {
	if worked {
		p.outage.recordReply(took, took-p.ownDelay >= p.lateAfter(), scripts)
	} else {
		p.outage.recordFailure(now)
	}
}

// recordExchange records an exchange: its number of requests, and whether it succeeded.
func (p *policy) recordExchange(requests int, took time.Duration, succeeded bool) {
	p.fast = succeeded && took < fastReply
	if succeeded {
		p.roundTrip.add(max(took-time.Duration(requests)*requestTime, 0))
		p.outage.distance = p.roundTrip.value()
	} else {
		p.roundTrip = recentLeast{} // another server may answer next
	}
}

// recordCongestion records how long an exchange took on its link.
func (p *policy) recordCongestion(requests int, took time.Duration, timedOut bool) {
	least := p.roundTrip.value()
	if least == 0 || took < least {
		least = took
	}
	p.congestion.record(requests, max(took-p.ownDelay, least), least, timedOut)
}

// leaveLink records that some requests are no longer awaited.
func (p *policy) leaveLink(requests int, after time.Duration) {
	p.congestion.record(requests, after, min(p.roundTrip.value(), after), false)
	p.congestion.sent -= requests
}

// small returns the kinds of requests that are coalesced even if they are alone. With a fast
// server, the large script is used, because its calls cost the client less.
func (p *policy) small() wire.JoinSet {
	if p.fast {
		return wire.JoinSet{}
	}
	return p.unknown
}

// mayCoalesce reports whether the next requests, a batch, are coalesced.
func (p *policy) mayCoalesce(requests int) bool {
	if p.skipCoalescing > 0 {
		p.skipCoalescing -= requests
		return false
	}
	return true
}

// recordCoalesced records how many coalesced requests had to be sent alone.
func (p *policy) recordCoalesced(alone, coalesced int) {
	if alone > coalesced/2 {
		p.skipCoalescing = coalescePause
	}
}

// recentLeast is the minimum over the last 64 to 128 durations. An average would depend more on the
// machine's load than on the distance to the server.
type recentLeast struct {
	current, previous least
}

// least is the minimum over n durations.
type least struct {
	n     int
	value time.Duration
}

func (r *recentLeast) add(d time.Duration) {
	const window = 64
	if r.current.n == window {
		r.previous, r.current = r.current, least{}
	}
	if r.current.n == 0 || d < r.current.value {
		r.current.value = d
	}
	r.current.n++
}

// value returns the least duration, or zero if there is none.
func (r *recentLeast) value() time.Duration {
	switch {
	case r.current.n == 0:
		return r.previous.value
	case r.previous.n == 0:
		return r.current.value
	}
	return min(r.current.value, r.previous.value)
}

// below reports whether any duration is less than limit.
func (r *recentLeast) below(limit time.Duration) bool {
	return r.current.n > 0 && r.current.value < limit || r.previous.n > 0 && r.previous.value < limit
}

// recentMean is a moving mean, in which recent numbers count most.
type recentMean struct{ scaled int }

const meanOf = 16 // numbers, about

func (m *recentMean) add(n int) { m.scaled += n - m.scaled/meanOf }

// exceeds reports whether the mean is larger than limit.
func (m *recentMean) exceeds(limit int) bool { return m.scaled > limit*meanOf }
