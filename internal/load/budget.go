package load

import "time"

// A Budget limits the requests in flight. The limit grows while answers are fast, and is halved by
// a late answer. An answer is late if it took much longer than the fastest recent answer, because
// requests waited for each other. A distant store is not late.
//
// The limit is a window like TCP's. After a failure it starts small. It doubles with each round of
// answers up to half the excessive value, and then grows by a unit per round. All clients see the
// same lateness, so they share a store without coordination.
//
// A Budget is not safe for concurrent use: see Gate.
type Budget struct {
	limit  float64       // units
	steady float64       // up to here the limit doubles
	sent   [kinds]int    // units on their way
	total  int           // their sum
	since  time.Duration // since when requests have been in flight
	flown  float64       // the limit that the last request would have filled
	last   time.Duration // when a request was last sent
	cutAt  time.Duration // requests sent earlier do not reduce the limit again
	silent int           // probes since the last answer
	failed time.Duration // the last failure
	pause  time.Duration // pause after a failure; doubles each time
	least  least
	heard  Heard
	slow   time.Duration // slowest recent answer, forgotten as others arrive
}

// Heard describes the answers received.
type Heard struct {
	At   time.Duration // when the last answer came
	Sent time.Duration // when the last answered request was sent
	Took time.Duration // the last answer
}

const (
	initialLimit = 256  // 2,048 renewals: four full batches
	restartLimit = 16   // after a failure; 128 renewals are a sample of the store's content
	highestLimit = 4096 // units
	lowestLimit  = 8
	lowestShare  = 8 // for each kind except renewals

	lateBy   = 200 * time.Millisecond // a waiting time from which on the limit is halved
	fastBy   = 100 * time.Millisecond // the limit grows up to this round trip
	probeGap = 250 * time.Millisecond // between requests while those on their way have no answer; it doubles
	longest  = 500 * time.Millisecond // and is at most this

	shortestPause = 25 * time.Millisecond
	longestPause  = 500 * time.Millisecond
)

// NewBudget returns the budget for a client that has sent nothing.
func NewBudget() *Budget {
	return &Budget{limit: initialLimit, steady: highestLimit, least: least{current: unknown, previous: unknown}}
}

// isSilent reports whether nothing was answered for so long that the next answer will be late.
// Further requests could not be answered in time. The first time, it halves the limit.
func (b *Budget) isSilent(now time.Duration) bool {
	since := max(b.heard.At, b.since)
	if b.total == 0 || now-since <= b.least.value()+lateBy {
		return false
	}
	if b.cutAt <= since {
		b.cut(now, b.flown)
	}
	return true
}

// Room returns how many units of a kind can be sent now. After a failure it is zero for a while,
// but not for longer than patience.
func (b *Budget) Room(now time.Duration, k Kind, patience time.Duration) int {
	if now < b.resume(patience) {
		return 0
	}
	if b.isSilent(now) {
		if now >= b.probeAt() {
			return 1
		}
		return 0
	}
	free := b.most(k) - float64(b.sent[k])
	switch {
	case free >= 1:
		return int(free)
	case b.sent[k] == 0 || now >= b.probeAt():
		return 1 // those on their way may never be answered
	}
	return 0
}

// most returns how many units of a kind can be in flight. Renewals can use the whole limit, because
// they have deadlines; the other kinds add less than the limit.
func (b *Budget) most(k Kind) float64 {
	if k == Renewal {
		return b.limit
	}
	return max(b.limit/4, lowestShare)
}

// Batch returns the size for a batch with up to most units. A small part is not sent while others
// are in flight: it would cost the store almost as much as a full batch.
func (b *Budget) Batch(now time.Duration, k Kind, most int, patience time.Duration) int {
	units := min(b.Room(now, k, patience), most)
	if units < most && b.sent[k] > 0 && float64(units) < b.most(k)/2 && now < b.probeAt() {
		return 0
	}
	return units
}

// Next returns when there will be room for a unit if no answer comes before.
func (b *Budget) Next(now time.Duration, k Kind, patience time.Duration) time.Duration {
	if b.isSilent(now) {
		return max(b.probeAt(), b.resume(patience))
	}
	if b.sent[k] == 0 || b.most(k)-float64(b.sent[k]) >= 1 {
		return b.resume(patience)
	}
	return max(b.probeAt(), b.resume(patience))
}

// resume returns when the pause after the last failure ends.
func (b *Budget) resume(patience time.Duration) time.Duration {
	return b.failed + min(b.pause, patience)
}

func (b *Budget) probeAt() time.Duration {
	usual := 4 * b.heard.Took
	return b.last + max(min(probeGap<<min(b.silent, 8), longest), usual)
}

// Send records a request.
func (b *Budget) Send(now time.Duration, k Kind, units int) Sent {
	if b.isSilent(now) || float64(b.sent[k]) >= b.most(k) {
		b.silent++
	}
	if b.total == 0 {
		b.since = now
	}
	b.sent[k] += units
	b.total += units
	b.last = now
	b.flown = b.limit * float64(b.sent[k]) / b.most(k)
	return Sent{kind: k, at: now, units: units, filled: 2*float64(b.sent[k]) >= b.most(k), limit: b.flown}
}

// End records a request's outcome. Only the first End for a request frees its room. But an answer
// after Unanswered still counts as an answer.
func (b *Budget) End(now time.Duration, s *Sent, what Outcome) {
	b.sent[s.kind] -= s.units
	b.total -= s.units
	units := s.units
	s.units = 0
	switch what {
	case Answered:
		b.answered(now, s, units)
	case Unanswered:
		b.halve(now, s)
	case Failed:
		b.pause = min(max(2*b.pause, shortestPause), longestPause)
		b.failed = now
		b.Restart(now)
	case Dropped:
	}
}

// answered adapts the limit to an answer.
func (b *Budget) answered(now time.Duration, s *Sent, units int) {
	b.silent, b.pause, b.failed = 0, 0, 0
	b.slow = max(now-s.at, b.slow*7/8)
	b.heard = Heard{At: now, Sent: max(b.heard.Sent, s.at), Took: max(now-s.at, 0)}
	b.least.add(now, b.heard.Took)
	switch waited := b.heard.Took - b.least.value(); {
	case waited > lateBy:
		b.halve(now, s)
	case waited > fastBy || !s.filled:
	case b.limit < b.steady:
		b.limit = min(b.limit+float64(units), b.steady)
	default:
		b.limit = min(b.limit+float64(units)/b.limit, highestLimit)
	}
}

// halve sets the limit to half the amount in flight, once for all requests that were in flight
// together.
func (b *Budget) halve(now time.Duration, s *Sent) {
	if s.at < b.cutAt {
		return
	}
	b.cut(now, s.limit)
}

// cut sets the limit to half the amount in flight.
func (b *Budget) cut(now time.Duration, flown float64) {
	b.cutAt = now
	b.limit = max(min(b.limit, flown)/2, lowestLimit)
	b.steady = b.limit
}

// Restart makes the limit small: the store was unreachable, and may be busy with other returning
// clients. The limit doubles with each round of answers, up to half its last value.
func (b *Budget) Restart(now time.Duration) {
	if b.limit > restartLimit {
		b.steady = max(b.limit/2, restartLimit)
		b.limit = restartLimit
	}
	b.cutAt, b.silent = now, 0
}

// Slow returns how long a slow answer takes.
func (b *Budget) Slow() time.Duration { return b.slow }

// IsReduced reports whether the store was slow, so that some requests must wait.
func (b *Budget) IsReduced() bool { return b.limit < initialLimit }
