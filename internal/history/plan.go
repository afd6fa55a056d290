package history

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Plan says what a run does. Fields that are zero get their defaults.
type Plan struct {
	Seed    uint64
	Ops     int    // how often something is asked for; the default is 10,000
	Clients int    // the default is 6
	Workers int    // goroutines, spread over the clients; the default is 36
	Prefix  string // of all names
	Again   bool   // workers use tokens again, and clients extend the leases of others
	Stay    bool   // nobody closes a client before the end, and all wait until nothing can arrive late
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

// The times of a plan: long enough to meet, short enough for many.
const (
	longTTL     = 10 * time.Second // of leases that must not expire: renewal has plenty of time
	shortest    = 20 * time.Millisecond
	longest     = 40 * time.Millisecond // TTLs of leases that may expire
	mostWork    = 2 * time.Millisecond
	mostMinHold = 10 * time.Millisecond
	overtime    = 4 * time.Millisecond // how far work outlives its lease
	patience    = 4 * time.Millisecond // of who gives up
	arrived     = 2 * time.Second      // by then nothing is under way to the store
)

// Names live in three spaces. In the mixed one there is everything that holds a name
// alone or reads it, and what ends before its time. Semaphores have names of their own,
// because their numbers mean nothing to others. In the calm one nobody gives up,
// expires or is broken, so that it is certain when a name was free.
const (
	mixedNames = 4
	semaphores = 2
	calmNames  = 2
)

func (p Plan) mixed(i int) string { return fmt.Sprintf("%smixed-%d", p.Prefix, i) }
func (p Plan) sem(i int) string   { return fmt.Sprintf("%ssem-%d", p.Prefix, i) }
func (p Plan) calm(i int) string  { return fmt.Sprintf("%scalm-%d", p.Prefix, i) }

// permits is how many permits the i-th semaphore has.
func permits(i int) int { return 3 + 2*i }

// names returns all names of the plan.
func (p Plan) names() (all []string) {
	for i := range mixedNames {
		all = append(all, p.mixed(i))
	}
	for i := range semaphores {
		all = append(all, p.sem(i))
	}
	for i := range calmNames {
		all = append(all, p.calm(i))
	}
	return all
}

// A primitive is what is asked for a lease.
type primitive int

const (
	mutex primitive = iota
	reader
	writer
	set
	semaphore
)

// A manner is how a lease is asked for.
type manner int

const (
	patient   manner = iota // for as long as it takes
	try                     // once
	attempts                // a few times, without queueing
	wait                    // for a limited time
	cancelled               // until the context is cancelled
	deadline                // until the context's deadline
)

// A step is one thing that a worker does, drawn before it begins, so that the seed
// alone decides it.
type step struct {
	breaks, closes bool // instead of asking for a lease

	primitive primitive
	names     []string
	weight    int
	limit     int
	manner    manner
	limited   time.Duration // when it gives up
	expires   bool          // a short lease that is not renewed
	ttl       time.Duration
	minHold   time.Duration
	work      time.Duration
	again     bool   // with a token that its worker has used before
	attaches  bool   // another client extends it, too
	looks     bool   // looks at the store while it holds
	changes   bool   // up- or downgrades while it holds
	during    func() // what else happens while it holds
	token     string // instead of one that dibs makes
	pick      int    // of the holders, whom to break
}

// draw returns a random step. Who is mortal may close his client, and keeps away from
// the calm.
func (p Plan) draw(r *rand.Rand, mortal bool) step {
	s := step{limited: upTo(r, patience), ttl: longTTL, work: upTo(r, mostWork), pick: r.IntN(100)}
	if chance(r, 40) {
		s.work = 0
	}
	where := r.IntN(100)
	switch {
	case where < 20 && !mortal:
		p.drawCalm(r, &s)
		return s
	case where < 45:
		p.drawSemaphore(r, &s)
	default:
		p.drawMixed(r, &s)
	}
	s.breaks = chance(r, 2)
	s.closes = mortal && !p.Stay && r.IntN(1000) < 4
	s.manner = drawManner(r)
	s.looks, s.changes = chance(r, 20), chance(r, 30)
	s.again, s.attaches = p.Again && chance(r, 30), p.Again && chance(r, 5)
	if chance(r, 4) {
		s.minHold = upTo(r, mostMinHold)
	}
	if chance(r, 4) {
		s.expires = true
		s.ttl = shortest + upTo(r, longest-shortest)
		s.work = s.ttl - 2*overtime + upTo(r, 3*overtime)
	}
	return s
}

func (p Plan) drawCalm(r *rand.Rand, s *step) {
	s.names = []string{p.calm(r.IntN(calmNames))}
	s.primitive = primitive(r.IntN(int(writer) + 1))
	s.weight, s.limit = share(s.primitive)
	s.work = min(s.work, mostWork/4) // so that the name is free now and then
	if chance(r, 75) {
		s.manner = try
	}
}

func (p Plan) drawSemaphore(r *rand.Rand, s *step) {
	i := r.IntN(semaphores)
	s.primitive = semaphore
	s.names = []string{p.sem(i)}
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
		s.primitive, n = set, 1+r.IntN(3)
	}
	s.weight, s.limit = share(s.primitive)
	for _, i := range order[:n] {
		s.names = append(s.names, p.mixed(i))
	}
}

// share is what a primitive takes of a name.
func share(p primitive) (weight, limit int) {
	switch p {
	case reader:
		return 1, driver.Unlimited
	case writer:
		return driver.Unlimited, driver.Unlimited
	}
	return 1, 1
}

func drawManner(r *rand.Rand) manner {
	switch dice := r.IntN(100); {
	case dice < 45:
		return patient
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
