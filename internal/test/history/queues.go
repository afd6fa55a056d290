package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A QueuePlan configures a run of RunQueues. The run is random and sequential, without a
// dibs.Client, so the test decides when time passes.
type QueuePlan struct {
	Seed   uint64
	Steps  int    // the default is 150
	Prefix string // for all names

	// Events beside joins, releases, tries and heartbeats. At the end of each, the waiters return,
	// or their processes ended.
	Silences bool // a waiter sends nothing for longer than its queue entry lives
	Stalls   bool // the store receives nothing for longer than queue entries live
	Forsaken bool // all waiters die, and the name is held until the queue's keys are about to expire
	Clock    bool // the store's clock is set forward or back

	// Forgets means that any request on a name can remove a seemingly dead waiter, which then loses
	// its place. Otherwise it keeps its place until another waiter is served.
	Forgets bool
}

// A Time is how time passes for a store.
type Time interface {
	Pass(d time.Duration) // time passes
	Step(d time.Duration) // the store's clock is set forward, or back
}

const (
	queueNames = 3
	forever    = time.Duration(1<<63 - 1)
	heartbeat  = driver.WaiterTTL / 2
	longHold   = 10 * time.Minute // TTL for leases: none ends in a run
	// A store need not record a heartbeat soon after the join or another heartbeat. A real server's
	// time continues while the test works.
	almostDead = driver.WaiterTTL*3/4 - 250*time.Millisecond
	// How long no waiter may be served although nobody holds a name: until dead waiters' entries
	// and hand-offs have ended.
	longestIdle = 3 * driver.WaiterTTL
	auxTTL      = time.Minute // for which a store may keep a queue without a heartbeat
)

// RunQueues lets waiters queue for a few names at a store, and returns contradictions to the rules
// Place and Served. The error comes from a request.
func RunQueues(ctx context.Context, store driver.Store, passing Time, plan QueuePlan) ([]Violation, error) {
	q := &queues{
		ctx: ctx, store: driver.Complete(store), time: passing, plan: plan, random: rand.New(rand.NewPCG(plan.Seed, 2)),
		holders: make(map[string]*queueWaiter),
	}
	stop, err := q.watch()
	if err != nil {
		return nil, err
	}
	defer stop()
	for range cmp.Or(plan.Steps, 150) {
		q.act()
		if q.err != nil || len(q.violations) > 0 {
			return q.violations, q.err
		}
	}
	q.drain()
	return q.violations, q.err
}

// queues is a single run.
type queues struct {
	ctx        context.Context
	store      *driver.Full
	time       Time
	plan       QueuePlan
	random     *rand.Rand
	now        time.Duration // elapsed
	count      int           // number of waiters
	waiting    []*queueWaiter
	holders    map[string]*queueWaiter // by name
	log        []string
	violations []Violation
	err        error
}

// A queueWaiter is a process's request.
type queueWaiter struct {
	request     driver.AcquireRequest
	first, last int           // its place in the queue's order is between the two
	asked       time.Duration // the time of its last request
	silentUntil time.Duration
	stale       bool // the clock was set since its last request: it may look dead
	overtaken   bool // while it looked dead: its next request may find its place lost
}

func (w *queueWaiter) String() string {
	return fmt.Sprintf("%s of %s", w.request.Token, strings.Join(w.request.Names(), "+"))
}

func (w *queueWaiter) wants(name string) bool { return slices.Contains(w.request.Names(), name) }

// looksAlive reports whether the store must treat the waiter as alive.
func (w *queueWaiter) looksAlive(now time.Duration) bool { return !w.stale && now-w.asked < almostDead }

// queueClient is the client for all waiters.
const queueClient = "host:1:historyAAAAAAAAA"

// watch receives the events, so the waiters are reachable. The run asks the store instead of
// reading them.
func (q *queues) watch() (stop func(), err error) {
	var failed error
	ctx, cancel := context.WithCancel(q.ctx)
	connected, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		failed = q.store.Watch(ctx, queueClient, nil, func(e driver.Event) {
			if e.Kind == driver.EventConnected {
				select {
				case connected <- struct{}{}:
				default:
				}
			}
		})
	}()
	select {
	case <-connected:
		return func() { cancel(); <-ended }, nil
	case <-ended:
		cancel()
		return nil, failed
	}
}

func (q *queues) logf(format string, args ...any) {
	q.log = append(q.log, fmt.Sprintf("%9.3f  ", q.now.Seconds())+fmt.Sprintf(format, args...))
}

func (q *queues) report(rule Rule, name, text string) {
	const most = 60
	last := q.log[max(0, len(q.log)-most):]
	q.violations = append(q.violations, Violation{Rule: rule, Name: name, Text: text + "\n\t" + strings.Join(last, "\n\t")})
}

// act does a random action.
func (q *queues) act() {
	q.announce()
	dice := q.random.IntN(100)
	switch {
	case dice < 30:
		q.join()
	case dice < 55:
		q.releaseOne()
	case dice < 63:
		q.try()
	case dice < 80:
		q.pass(upTo(q.random, 2*time.Second))
	case dice < 86 && q.plan.Silences:
		q.silence(driver.WaiterTTL + upTo(q.random, 4*time.Second))
	case dice < 88:
		q.silence(forever)
	case dice < 91 && q.plan.Stalls:
		q.stall()
	case dice < 93 && q.plan.Forsaken:
		q.forsake()
	case dice < 97 && q.plan.Clock:
		q.step()
	}
}

// announce announces requests for all names, at a store with announcements. They must not make a
// waiter dead.
func (q *queues) announce() {
	if !q.store.Has("Announcer") || chance(q.random, 50) {
		return
	}
	var names []string
	for i := range queueNames {
		names = append(names, q.name(i))
	}
	q.store.Announce(q.ctx, names)
}

// name returns a name. All share a hash tag, so a cluster can acquire them together.
func (q *queues) name(i int) string { return fmt.Sprintf("%s{q}%d", q.plan.Prefix, i) }

func (q *queues) newWaiter() *queueWaiter {
	q.count++
	names := q.random.Perm(queueNames)
	if chance(q.random, 60) {
		names = names[:1]
	} else {
		names = names[:2+q.random.IntN(queueNames-1)]
	}
	w := &queueWaiter{first: q.count, last: q.count, request: driver.AcquireRequest{
		Token: fmt.Sprintf("%s:%d", queueClient, q.count), Client: queueClient, Seq: uint64(q.count), TTL: longHold, Weight: 1, Limit: 1,
	}}
	for i, n := range names {
		name := q.name(n)
		if i == 0 {
			w.request.Name = name
		} else {
			w.request.With = append(w.request.With, name)
		}
	}
	return w
}

// join adds a waiter, or a holder if the names are free.
func (q *queues) join() {
	const most = 10
	if len(q.waiting) == most {
		return
	}
	w := q.newWaiter()
	w.request.Queue = true
	q.waiting = append(q.waiting, w)
	q.send(w)
}

// try sends a request that does not queue.
func (q *queues) try() {
	w := q.newWaiter()
	q.send(w)
}

// send sends a request, or repeats it.
func (q *queues) send(w *queueWaiter) {
	q.forget(w)
	var reply driver.AcquireReply
	const tries = 5 // a request may be void after the clock was set
	for range tries {
		w.request.Until = time.Now().Add(time.Minute)
		if reply, q.err = q.store.Acquire(q.ctx, w.request); !errors.Is(q.err, driver.ErrUnavailable) {
			break
		}
	}
	if q.err != nil {
		return
	}
	w.request.Ticket = max(w.request.Ticket, reply.Ticket)
	q.logf("%v: held %v, ticket %d, position %d", w, reply.Held, reply.Ticket, reply.Position)
	if reply.Held {
		q.granted(w)
	}
	q.observe() // the waiter may have looked dead to its own request, which served another
	w.asked, w.stale = q.now, false
	if w.overtaken {
		q.count++
		w.last, w.overtaken = q.count, false
	}
}

// granted records a waiter's grant, and checks that it overtook nobody.
func (q *queues) granted(w *queueWaiter) {
	known := true
	for _, name := range w.request.Names() {
		known = known && q.holders[name] == w
		q.holders[name] = w
	}
	if known {
		return
	}
	q.logf("%v is granted", w)
	q.waiting = slices.DeleteFunc(q.waiting, func(o *queueWaiter) bool { return o == w })
	for _, o := range q.waiting {
		name, meets := q.commonName(o, w)
		switch {
		case !meets || o.last > w.first || o.overtaken:
		case o.looksAlive(q.now):
			q.report(Place, name, fmt.Sprintf("%v is served before %v, which waits", w, o))
		default: // it may have been taken for dead
			o.overtaken = true
		}
	}
}

// forget expects a request to remove seemingly dead waiters.
func (q *queues) forget(by *queueWaiter) {
	if !q.plan.Forgets {
		return
	}
	for _, o := range q.waiting {
		if _, meets := q.commonName(o, by); meets && o != by && !o.looksAlive(q.now) {
			o.overtaken = true
		}
	}
}

func (q *queues) commonName(a, b *queueWaiter) (string, bool) {
	for _, name := range a.request.Names() {
		if b.wants(name) {
			return name, true
		}
	}
	return "", false
}

// observe asks the store for the holders. A single-name waiter served by a release confirms at
// once, unless it is silent: then its hand-off expires.
func (q *queues) observe() {
	for i := range queueNames {
		name := q.name(i)
		state, err := q.store.Inspect(q.ctx, name)
		if err != nil {
			q.err = err
			return
		}
		token := ""
		if len(state.Holders) > 0 {
			token = state.Holders[0].Token
		}
		if h := q.holders[name]; h != nil && h.request.Token != token {
			delete(q.holders, name)
		}
		for _, w := range slices.Clone(q.waiting) {
			if w.request.Token != token || len(w.request.With) > 0 {
				continue
			}
			q.granted(w)
			if w.silentUntil <= q.now {
				q.send(w)
			}
		}
	}
}

// releaseOne releases a random holder, whose waiters are notified.
func (q *queues) releaseOne() {
	held := q.heldLeases()
	if len(held) == 0 {
		return
	}
	q.release(held[q.random.IntN(len(held))])
}

// heldLeases returns the holders except silent ones, in request order.
func (q *queues) heldLeases() (held []*queueWaiter) {
	for _, h := range q.holders {
		if h.silentUntil <= q.now && !slices.Contains(held, h) {
			held = append(held, h)
		}
	}
	slices.SortFunc(held, func(a, b *queueWaiter) int { return cmp.Compare(a.request.Seq, b.request.Seq) })
	return held
}

func (q *queues) release(h *queueWaiter) {
	q.logf("%v releases", h)
	q.forget(h)
	for _, name := range h.request.Names() {
		if q.holders[name] == h {
			delete(q.holders, name)
		}
		if _, err := q.store.Release(q.ctx, driver.ReleaseRequest{Name: name, Token: h.request.Token, TokenEnds: true}); err != nil {
			q.err = err
			return
		}
		q.observe()
	}
	q.retry()
}

// retry repeats the requests for several names, as their clients do when notified.
func (q *queues) retry() {
	for _, w := range slices.Clone(q.waiting) {
		if len(w.request.With) > 0 && w.silentUntil <= q.now && slices.Contains(q.waiting, w) {
			q.send(w)
		}
	}
}

// pass lets time pass. All waiters except silent ones send their heartbeats.
func (q *queues) pass(d time.Duration) {
	for end := q.now + d; q.err == nil; {
		next := end
		for _, w := range q.waiting {
			if due := w.due(); due > q.now {
				next = min(next, due)
			}
		}
		q.passSilently(next - q.now)
		q.heartbeats()
		if q.now >= end {
			return
		}
	}
}

// due returns when a waiter sends its next request.
func (w *queueWaiter) due() time.Duration { return max(w.asked+heartbeat, w.silentUntil) }

func (q *queues) passSilently(d time.Duration) {
	if d > 0 {
		q.time.Pass(d)
		q.now += d
	}
	q.observe()
}

// heartbeats sends due heartbeats, in any order.
func (q *queues) heartbeats() {
	all := slices.Clone(q.waiting)
	q.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, w := range all {
		if w.due() <= q.now && slices.Contains(q.waiting, w) && q.err == nil {
			q.send(w)
		}
	}
}

// silence lets a waiter send nothing for a while. For ever means that its process ended.
func (q *queues) silence(d time.Duration) {
	if len(q.waiting) == 0 {
		return
	}
	w := q.waiting[q.random.IntN(len(q.waiting))]
	if w.silentUntil > q.now {
		return
	}
	w.silentUntil = forever
	if d < forever {
		w.silentUntil = q.now + d
	}
	q.logf("%v is silent until %v", w, w.silentUntil)
}

// stall lets the store receive nothing for longer than queue entries live. Then all waiters
// retry.
func (q *queues) stall() {
	q.logf("the store stalls")
	q.passSilently(driver.WaiterTTL + upTo(q.random, 3*time.Second))
	q.heartbeats()
}

// forsake lets all waiters die. Others come when the store is about to remove their queue's keys.
func (q *queues) forsake() {
	if len(q.holders) == 0 {
		return
	}
	q.logf("all waiters die")
	for _, w := range q.waiting {
		w.silentUntil = forever
	}
	q.pass(auxTTL - upTo(q.random, driver.WaiterTTL))
	for range 3 {
		q.join()
		q.pass(upTo(q.random, heartbeat))
		q.try()
	}
}

// step sets the clock, and lets the waiters retry or not.
func (q *queues) step() {
	steps := []time.Duration{-time.Hour, -6 * time.Second, -300 * time.Millisecond, -300 * time.Millisecond, 300 * time.Millisecond, 6 * time.Second}
	d := steps[q.random.IntN(len(steps))]
	q.logf("the clock is set by %v", d)
	q.time.Step(d)
	for _, w := range q.waiting {
		w.stale = w.stale || d.Abs() > time.Second // until its next request
	}
	q.observe()
}

// drain releases all, until all living waiters are served.
func (q *queues) drain() {
	q.logf("no new waiters")
	idle := time.Duration(0)
	alive := func(w *queueWaiter) bool { return w.silentUntil < forever }
	for q.err == nil && len(q.violations) == 0 && slices.ContainsFunc(q.waiting, alive) {
		before := len(q.waiting)
		for _, h := range q.heldLeases() {
			q.release(h)
		}
		const every = 500 * time.Millisecond
		q.pass(every)
		q.retry()
		if idle += every; len(q.waiting) < before || q.returns() {
			idle = 0
		}
		if idle > longestIdle {
			q.report(Served, q.waiting[0].request.Name, fmt.Sprintf("nobody was served for %v, although nobody holds: %v wait", idle, q.waiting))
		}
	}
}

// returns reports whether a waiter is silent and will return.
func (q *queues) returns() bool {
	return slices.ContainsFunc(q.waiting, func(w *queueWaiter) bool { return w.silentUntil > q.now && w.silentUntil < forever })
}
