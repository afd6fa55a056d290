package history

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Plan configures a run. Zero fields get their defaults.
type Plan struct {
	Seed        uint64
	Ops         int    // number of steps; the default is 10,000
	Clients     int    // the default is 6
	Workers     int    // goroutines, distributed over the clients; the default is 36
	Prefix      string // for all names
	ReuseTokens bool   // workers reuse tokens, and clients extend other clients' leases
	KeepClients bool   // clients are closed at the end only, after all late messages have arrived
	PassesOver  bool   // the store can serve others before an unreachable waiter: see Waiters

	Cohorts bool          // clients have cohorts, with batches from 1 to 4
	Linger  time.Duration // for every second client, with Cohorts
	Instant bool          // messages take no time, so the number of passes is exact

	limits driver.Limits // of the store
}

func (p Plan) withDefaults() Plan {
	fill := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	fill(&p.Ops, 10_000)
	fill(&p.Clients, 6)
	fill(&p.Workers, 36)
	return p
}

// Durations in a plan: long enough for operations to overlap, short enough for many operations.
const (
	longTTL     = 10 * time.Second // for leases meant not to expire: there is ample time for renewal
	shortest    = 20 * time.Millisecond
	longest     = 40 * time.Millisecond // for leases that can expire
	mostWork    = 2 * time.Millisecond
	mostMinHold = 10 * time.Millisecond
	overtime    = 4 * time.Millisecond // maximum by which work exceeds its lease
	maxWait     = 4 * time.Millisecond // for impatient requests
	lateArrival = 2 * time.Second      // all messages to the store have arrived by then
)

// drawExpiring makes a step's lease end about when its work ends. If the store has no such short
// leases, the step takes seconds, so there are fewer.
func (p Plan) drawExpiring(r *rand.Rand, s *step) {
	if p.limits.MinTTL > longest && !chance(r, 10) {
		return
	}
	s.expires = true
	s.ttl = max(shortest, p.limits.MinTTL) + upTo(r, longest-shortest)
	s.work = s.ttl - 2*overtime + upTo(r, 3*overtime)
}

// There are three groups of names. Mixed names have exclusive leases and readers, which can end
// early. Semaphores have their own names, because their limits do not match those of other leases.
// On stable names no request gives up and no lease expires or is revoked, so it is certain when a
// name was free.
const (
	mixedNames  = 4
	semaphores  = 2
	stableNames = 2
)

func (p Plan) mixedName(i int) string     { return fmt.Sprintf("%smixed-%d", p.Prefix, i) }
func (p Plan) semaphoreName(i int) string { return fmt.Sprintf("%ssem-%d", p.Prefix, i) }
func (p Plan) stableName(i int) string    { return fmt.Sprintf("%sstable-%d", p.Prefix, i) }

// permits returns the i-th semaphore's number of permits.
func permits(i int) int { return 3 + 2*i }

// names returns all names in the plan.
func (p Plan) names() (all []string) {
	for i := range mixedNames {
		all = append(all, p.mixedName(i))
	}
	for i := range semaphores {
		all = append(all, p.semaphoreName(i))
	}
	for i := range stableNames {
		all = append(all, p.stableName(i))
	}
	return all
}

// A primitive is the kind of lock used in a step.
type primitive int

const (
	mutex primitive = iota
	reader
	writer
	multiLock
	semaphore
)

// A waitMode sets how long a step waits for its lease.
type waitMode int

const (
	waitForever waitMode = iota // no limit
	try                         // a single try
	attempts                    // a few tries, without queueing
	wait                        // a limited time
	cancelled                   // until the context is cancelled
	deadline                    // until the context's deadline
)

// A step is a worker's operation. It is drawn before it begins, so it depends only on the seed.
type step struct {
	revokes, closes bool // instead of acquiring a lease

	primitive   primitive
	names       []string
	weight      int
	limit       int
	waitMode    waitMode
	giveUpAfter time.Duration // limit for the wait
	expires     bool          // the lease is short and not renewed
	ttl         time.Duration
	minHold     time.Duration
	work        time.Duration
	reusesToken bool   // uses one of its worker's earlier tokens
	attaches    bool   // another client also extends the lease
	inspects    bool   // inspects the store while it holds
	resizes     bool   // upgrades or downgrades while it holds
	during      func() // runs while it holds
	token       string // replaces the generated token
	pick        int    // random index, for example for the holder to revoke
}

// draw returns a random step. A worker whose client is closable may close it, and does
// not use stable names.
func (p Plan) draw(r *rand.Rand, mortal bool) step {
	s := step{giveUpAfter: upTo(r, maxWait), ttl: longTTL, work: upTo(r, mostWork), pick: r.IntN(100)}
	if chance(r, 40) {
		s.work = 0
	}
	where := r.IntN(100)
	switch {
	case where < 20 && !mortal:
		p.drawStable(r, &s)
		return s
	case where < 45:
		p.drawSemaphore(r, &s)
	default:
		p.drawMixed(r, &s)
	}
	s.revokes = chance(r, 2)
	s.closes = mortal && !p.KeepClients && r.IntN(1000) < 4
	s.waitMode = drawWaitMode(r)
	s.inspects, s.resizes = chance(r, 20), chance(r, 30)
	s.reusesToken, s.attaches = p.ReuseTokens && chance(r, 30), p.ReuseTokens && chance(r, 5)
	if chance(r, 4) {
		s.minHold = upTo(r, mostMinHold)
	}
	if chance(r, 4) {
		p.drawExpiring(r, &s)
	}
	return s
}

func (p Plan) drawStable(r *rand.Rand, s *step) {
	s.names = []string{p.stableName(r.IntN(stableNames))}
	s.primitive = primitive(r.IntN(int(writer) + 1))
	s.weight, s.limit = weightOf(s.primitive)
	s.work = min(s.work, mostWork/4) // so the name is free from time to time
	if chance(r, 75) {
		s.waitMode = try
	}
}

func (p Plan) drawSemaphore(r *rand.Rand, s *step) {
	i := r.IntN(semaphores)
	s.primitive = semaphore
	s.names = []string{p.semaphoreName(i)}
	s.limit = permits(i)
	s.weight = 1
	if chance(r, 30) {
		s.weight += r.IntN(s.limit)
	}
}

func (p Plan) drawMixed(r *rand.Rand, s *step) {
	order := r.Perm(mixedNames)
	n := 1
	switch dice := r.IntN(100); {
	case dice < 25:
		s.primitive = mutex
	case dice < 60:
		s.primitive = reader
	case dice < 80:
		s.primitive = writer
	default:
		s.primitive, n = multiLock, 1+r.IntN(3)
	}
	s.weight, s.limit = weightOf(s.primitive)
	for _, i := range order[:n] {
		s.names = append(s.names, p.mixedName(i))
	}
}

// weightOf returns a primitive's weight and limit.
func weightOf(p primitive) (weight, limit int) {
	switch p {
	case reader:
		return 1, driver.Unlimited
	case writer:
		return driver.Unlimited, driver.Unlimited
	}
	return 1, 1
}

func drawWaitMode(r *rand.Rand) waitMode {
	switch dice := r.IntN(100); {
	case dice < 45:
		return waitForever
	case dice < 65:
		return try
	case dice < 75:
		return attempts
	case dice < 85:
		return wait
	case dice < 93:
		return cancelled
	}
	return deadline
}

func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

func upTo(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(1 + r.Int64N(int64(d)))
}
