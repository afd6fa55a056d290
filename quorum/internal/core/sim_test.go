package core

import (
	"errors"
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/locktable"
)

// The simulation runs several clients' state machines against lock tables, in virtual time and on
// one goroutine. So a seed determines every step. It injects these faults:
//
// - late, reordered and lost messages;
// - connections that are reset although the message arrives, and refused requests;
// - nodes that stop and return, with or without their data;
// - cut links, suspended processes, some for longer than their queue entries live, and drifting
//   clocks. Nodes' wall clocks are stepped, which must not matter.
//
// A client's workers act like dibs.Client: they wait for notifications, renew, repeat requests
// without an outcome, and cancel abandoned requests. Package quorum contains a second simulation,
// with the real client.

var (
	seedFlag  = flag.Uint64("seed", 0, "run the simulation with this seed only and print its log")
	seedsFlag = flag.String("seeds", "1-300", "range of seeds for the simulation")
)

// conditions describe a simulated world.
type conditions struct {
	Config
	clockDrift float64 // maximum drift of a node's clock, in both directions
	losesData  bool    // nodes lose their data when they stop
	ttl        time.Duration
	noRenewal  bool // leases are held until their TTL ends
}

const shortTTL = 2 * time.Second

// defaultConditions returns conditions in which a quorum must work. In every second world, leases
// are too long to expire during the run, so that a leaked lease is detected.
func defaultConditions(seed uint64) conditions {
	c := conditions{clockDrift: 0.01, ttl: 30 * time.Second}
	c.Nodes = []int{3, 5, 4, 5, 1, 7}[seed%6]
	if seed/6%2 == 0 {
		c.ttl, c.losesData = shortTTL, true
	}
	c.Majority, c.Longest, c.RecoveryWindow = c.Nodes/2+1, c.ttl, c.ttl
	return c
}

// A world is a single simulation run.
type world struct {
	conditions
	rng     *rand.Rand
	now     time.Time
	begin   time.Time
	end     time.Time // end of work and faults
	events  events
	servers []*server
	clients []*client

	leases          map[string][]*lease // by name
	fences          map[string]uint64   // largest fence by name
	exclusiveFences map[string]uint64   // largest fence in an exclusive lease, by name
	grants          int
	violations      []string
	digest          uint64 // over all messages
	logging         bool
	log             []string
}

// events are future events, the earliest first. Events at the same instant run in the order in
// which they were scheduled. The heap contains no pointers, so that moving its elements is cheap:
// the simulation spent most of its time there.
type events struct {
	heap   []event
	what   []func()
	unused []int32 // unused indices
	serial int64
}

type event struct {
	at     int64 // in ns since the beginning
	serial int64
	what   int32
}

func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.serial < o.serial }

func (s *events) push(at int64, do func()) {
	if len(s.unused) == 0 {
		s.unused = append(s.unused, int32(len(s.what)))
		s.what = append(s.what, nil)
	}
	n := len(s.unused) - 1
	e := event{at, s.serial, s.unused[n]}
	s.serial++
	s.unused, s.what[e.what] = s.unused[:n], do
	s.heap = append(s.heap, e)
	i := len(s.heap) - 1
	for i > 0 && e.before(s.heap[(i-1)/2]) {
		s.heap[i] = s.heap[(i-1)/2]
		i = (i - 1) / 2
	}
	s.heap[i] = e
}

func (s *events) pop() (at int64, do func()) {
	first, last := s.heap[0], s.heap[len(s.heap)-1]
	s.heap = s.heap[:len(s.heap)-1]
	i := 0
	for child := 1; child < len(s.heap); child = 2*i + 1 {
		if child+1 < len(s.heap) && s.heap[child+1].before(s.heap[child]) {
			child++
		}
		if !s.heap[child].before(last) {
			break
		}
		s.heap[i] = s.heap[child]
		i = child
	}
	if len(s.heap) > 0 {
		s.heap[i] = last
	}
	do, s.what[first.what] = s.what[first.what], nil
	s.unused = append(s.unused, first.what)
	return first.at, do
}

func (w *world) at(t time.Time, do func()) { w.events.push(int64(later(t, w.now).Sub(w.begin)), do) }

func (w *world) after(d time.Duration, do func()) { w.at(w.now.Add(d), do) }

// run lets time pass until there is nothing left to do, or until the end.
func (w *world) run(end time.Time) {
	for len(w.events.heap) > 0 && w.events.heap[0].at <= int64(end.Sub(w.begin)) {
		at, do := w.events.pop()
		w.now = w.begin.Add(time.Duration(at))
		do()
	}
}

func (w *world) random(most time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(most)))
}

func (w *world) oneIn(n int) bool { return w.rng.IntN(n) == 0 }

func (w *world) logf(format string, args ...any) {
	if w.logging {
		w.log = append(w.log, fmt.Sprintf("%13.9f  ", w.now.Sub(w.begin).Seconds())+fmt.Sprintf(format, args...))
	}
}

func (w *world) violationf(format string, args ...any) {
	w.violations = append(w.violations, fmt.Sprintf("%v: ", w.now.Sub(w.begin))+fmt.Sprintf(format, args...))
	w.logf("VIOLATION: "+format, args...)
}

// A server is a node: a lock table with its own clock.
type server struct {
	w     *world
	table *locktable.Table
	rate  float64       // clock rate
	set   time.Duration // by which its wall clock was set
	down  bool
	lives int
}

func (s *server) now() locktable.Now {
	at := time.Duration(s.rate * float64(s.w.now.Sub(s.w.begin)))
	return locktable.Now{At: at, Wall: s.w.begin.Add(at + s.set)}
}

// restart makes the server lose its data.
func (s *server) restart(number int) {
	s.lives++
	s.table = locktable.New()
	s.table.Node = fmt.Sprintf("node-%d-%d", number, s.lives)
	if s.lives > 1 {
		s.table.RestartedAt = s.now().At
	}
}

var (
	errCut   = errors.New("connection refused")
	errReset = errors.New("connection reset")
	errFull  = errors.New("out of memory")
	errLate  = errors.New("the request arrived after its time limit")
	errTime  = errors.New("no reply in time")
)

func failure(cause error) Reply {
	return Reply{Err: &driver.UnavailableError{Op: "simulated", Cause: cause}}
}

// serve executes a message.
func (s *server) serve(msg *Message) (r Reply) {
	now := s.now()
	if s.w.now.After(msg.Until) && msg.Verb != Extend {
		return failure(errLate)
	}
	var sent []locktable.Notification
	switch msg.Verb {
	case Acquire:
		r.Acquire, sent, r.Err = s.table.Acquire(msg.Acquire, now)
	case Cancel:
		sent = s.table.Cancel(msg.Acquire, now)
	case Resize:
		r.Acquire, sent = s.table.Resize(msg.Acquire, now)
	case Release:
		r.OK, sent = s.table.Release(msg.Release, now)
	case Extend:
		r.Errs = s.table.Extend(msg.Extend, now)
	}
	for _, n := range sent {
		s.w.notify(msg.Node, n)
	}
	return r
}

// holds reports whether a token holds a name here.
func (s *server) holds(name, token string) bool {
	return slices.ContainsFunc(s.table.Inspect(name, s.now()).Holders, func(h driver.Holder) bool { return h.Token == token })
}

// A client is a process with its state machine.
type client struct {
	w           *world
	name        string
	machine     *Machine
	links       []*link
	workers     map[string]*worker // by token
	calls       map[*Call]*worker
	wakeAt      time.Time // time of the next wake event; zero if none
	frozenUntil time.Time
}

// A link connects a client to a node.
type link struct {
	cut        bool
	delay      time.Duration // added to the usual delay
	resetUntil time.Time     // each connection is reset until then
	last       time.Time     // arrival of the last notification: notifications stay in order
}

// resume runs a function in the client's process, which may be suspended.
func (c *client) resume(do func()) {
	if c.w.now.Before(c.frozenUntil) {
		c.w.at(c.frozenUntil, func() { c.resume(do) })
		return
	}
	do()
}

// step applies a step's effects.
func (c *client) step(e Effects) {
	for _, msg := range e.Send {
		c.send(msg)
	}
	for _, call := range e.Ended {
		worker := c.calls[call]
		delete(c.calls, call)
		c.w.after(0, worker.resume)
	}
	for _, n := range e.Notify {
		if worker := c.workers[n.Event.Token]; worker != nil {
			worker.receive(n.Event)
		}
	}
	at := c.machine.NextWake()
	if at.IsZero() || !c.wakeAt.IsZero() && !at.Before(c.wakeAt) {
		return
	}
	c.wakeAt = at
	c.w.at(later(at, c.w.now), func() {
		if c.wakeAt.Equal(at) {
			c.resume(func() {
				c.wakeAt = time.Time{}
				c.step(c.machine.Wake(c.w.now))
			})
		}
	})
}

// A transit is the fate of a message.
type transit struct {
	delay   time.Duration
	lost    bool
	reset   time.Duration // if not zero: when the sender sees a connection reset
	refused bool
}

func (w *world) transit(l *link) (t transit) {
	const one = time.Millisecond
	t.delay = one/5 + time.Duration(w.rng.ExpFloat64()*float64(one)) + l.delay
	if w.oneIn(50) {
		t.delay += w.random(time.Second)
	}
	t.lost = l.cut || w.now.Before(w.end) && w.oneIn(200)
	if w.now.After(w.end) {
		return t
	}
	if t.refused = w.oneIn(100); !t.refused && (w.oneIn(30) || w.now.Before(l.resetUntil)) {
		t.reset = one + w.random(5*one)
		t.delay += t.reset + w.random(400*one)
	}
	return t
}

// send sends a message to its node and answers it once: by the reply, or by an error.
func (c *client) send(msg *Message) {
	w, l := c.w, c.links[msg.Node]
	sent := *msg // the machine may change the message after its answer
	answered := false
	answer := func(r Reply) {
		if answered {
			return
		}
		answered = true
		c.resume(func() {
			w.record(c, &sent, r)
			if msg.Verb == Extend && r.Err != nil {
				r.Errs = slices.Repeat([]error{r.Err}, len(msg.Extend))
			}
			c.step(c.machine.Answer(msg, r, w.now))
		})
	}
	there, back := w.transit(l), w.transit(l)
	timeout := msg.Until.Add(-5 * time.Millisecond)
	if there.lost || back.lost || w.now.Add(there.delay+back.delay).After(timeout) {
		w.at(timeout, func() { answer(failure(errTime)) })
	}
	if there.reset > 0 {
		w.after(there.reset, func() { answer(failure(errReset)) })
	}
	if there.lost {
		return
	}
	w.after(there.delay, func() {
		s := w.servers[sent.Node]
		var r Reply
		switch {
		case s.down:
			r = failure(errCut)
		case there.refused:
			r.Err = &driver.UnavailableError{Op: "simulated", Refused: true, Cause: errFull}
		default:
			r = s.serve(&sent)
			w.logMessage("serves", &sent, r)
		}
		if !back.lost && !answered {
			w.after(back.delay, func() { answer(r) })
		}
	})
}

// logMessage logs a message with its answer.
func (w *world) logMessage(what string, msg *Message, r Reply) {
	if w.logging {
		w.logf("node %d: %s verb %d, %q %s%s: %+v %v %v %v", msg.Node, what, msg.Verb,
			msg.Acquire.Name+msg.Release.Name, msg.Acquire.Token, msg.Release.Token, r.Acquire, r.OK, r.Errs, r.Err)
	}
}

// record adds an answer to the digest and to the log.
func (w *world) record(c *client, msg *Message, r Reply) {
	for _, n := range []uint64{uint64(w.now.Sub(w.begin)), uint64(c.name[len(c.name)-1]), uint64(msg.Node), uint64(msg.Verb), r.Acquire.Fence} {
		w.digest = (w.digest ^ n) * 0x100000001b3 // FNV-1a, by words
	}
	w.logMessage("answered", msg, r)
}

// notify delivers a node's notification to its client.
func (w *world) notify(node int, n locktable.Notification) {
	if n.Event.Kind != driver.EventGranted {
		return
	}
	for _, c := range w.clients {
		if c.name != n.Client {
			continue
		}
		l := c.links[node]
		t := w.transit(l)
		if t.lost {
			return
		}
		l.last = later(w.now.Add(t.delay), l.last)
		w.at(l.last, func() {
			c.resume(func() {
				w.logf("%s: node %d granted %s, fence %d", c.name, node, n.Event.Token, n.Event.Fence)
				c.step(c.machine.Granted(node, n.Event, w.now))
			})
		})
	}
}

// A worker acquires and releases names, like a goroutine in a program. It is a coroutine: it runs
// until it waits for something.
type worker struct {
	c       *client
	w       *world
	name    string
	next    func() (struct{}, bool)
	yield   func(struct{}) bool
	parked  int            // how often it waited for an event
	waiting bool           // it waits for an event now
	inbox   []driver.Event // arrived events
	tokens  int
}

// start starts a worker.
func (c *client) start(name string, work func(*worker)) {
	o := &worker{c: c, w: c.w, name: name}
	o.next, _ = iter.Pull(func(yield func(struct{}) bool) {
		o.yield = yield
		work(o)
	})
	c.w.after(0, o.resume)
}

// resume lets a worker go on, unless its process is suspended.
func (o *worker) resume() { o.c.resume(func() { o.next() }) }

func (o *worker) sleep(d time.Duration) {
	o.w.after(d, o.resume)
	o.yield(struct{}{})
}

// call runs a machine's call and waits for its end.
func (o *worker) call(start func(c *Call) Effects) *Call {
	call := new(Call)
	o.c.calls[call] = o
	o.c.step(start(call))
	o.yield(struct{}{})
	return call
}

func (o *worker) receive(e driver.Event) {
	o.inbox = append(o.inbox, e)
	if o.waiting {
		o.waiting = false
		o.w.after(0, o.resume)
	}
}

// await waits for an event until a time.
func (o *worker) await(until time.Time) (e driver.Event, ok bool) {
	if len(o.inbox) == 0 {
		o.parked++
		o.waiting = true
		parked := o.parked
		o.w.at(until, func() {
			if o.waiting && o.parked == parked {
				o.waiting = false
				o.resume()
			}
		})
		o.yield(struct{}{})
	}
	if len(o.inbox) == 0 {
		return e, false
	}
	return pop(&o.inbox), true
}

// A lease is held by a worker.
type lease struct {
	driver.AcquireRequest
	fence    uint64
	deadline time.Time
	shared   bool
	ended    bool
}

func (l *lease) valid(now time.Time) bool { return !l.ended && now.Before(l.deadline) }

func margin(ttl time.Duration) time.Duration { return max(ttl/50, 2*time.Millisecond) }

// lock acquires a name, or returns nil.
func (o *worker) lock(q driver.AcquireRequest, wait time.Duration) *lease {
	w := o.w
	limit := w.now.Add(wait)
	q.Queue = wait > 0
	o.inbox = nil
	o.c.workers[q.Token] = o
	defer delete(o.c.workers, q.Token)
	for {
		sent, reply, err := o.acquire(q, limit)
		switch {
		case err != nil:
			w.logf("%s: %q: %v", q.Token, q.Name, err)
			o.cancel(q)
			return nil
		case reply.Held:
			return o.granted(q, sent, q.TTL, reply.Fence)
		case !q.Queue:
			return nil
		}
		d := min(2500*time.Millisecond, q.TTL/2)
		if reply.Remaining >= 0 {
			d = min(d, reply.Remaining+time.Duration(2*reply.Position)*time.Millisecond)
		}
		e, ok := o.await(earlier(limit, w.now.Add(d)))
		ttl := q.HandoffTTL()
		if ok && e.Ticket == reply.Ticket && sent.Add(ttl-margin(ttl)).Sub(w.now) >= ttl/4 {
			return o.granted(q, sent, ttl, e.Fence)
		}
		if !w.now.Before(limit) {
			o.cancel(q)
			return nil
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// acquire sends a request, and repeats it for up to a second while the outcome is unknown.
func (o *worker) acquire(q driver.AcquireRequest, limit time.Time) (sent time.Time, reply driver.AcquireReply, err error) {
	for end := o.w.now.Add(driver.OperationTimeout); ; o.sleep(time.Millisecond + o.w.random(10*time.Millisecond)) {
		sent = o.w.now
		q.Until = earlier(end, sent.Add(driver.OperationTimeout/time.Duration(1+o.w.rng.IntN(3))))
		c := o.call(func(c *Call) Effects {
			e := o.c.machine.Acquire(c, q, o.w.now)
			if o.w.oneIn(40) { // the caller's context ends
				o.w.after(o.w.random(50*time.Millisecond), func() {
					o.c.resume(func() { o.c.step(o.c.machine.Leave(c, errTime, o.w.now)) })
				})
			}
			return e
		})
		if c.Err == nil || !o.w.now.Add(time.Millisecond).Before(end) {
			return sent, c.Reply, c.Err
		}
	}
}

// cancel cancels a request, as often as it takes.
func (o *worker) cancel(q driver.AcquireRequest) {
	for range 200 {
		q.Until = o.w.now.Add(driver.OperationTimeout)
		if c := o.call(func(c *Call) Effects { return o.c.machine.Cancel(c, q, o.w.now) }); c.Err == nil {
			return
		}
		o.sleep(50 * time.Millisecond)
	}
}

// granted records a lease, checks that it was allowed, and renews it until it ends.
func (o *worker) granted(q driver.AcquireRequest, sent time.Time, ttl time.Duration, fence uint64) *lease {
	w := o.w
	l := &lease{AcquireRequest: q, fence: fence, deadline: sent.Add(ttl - margin(ttl)), shared: !q.Exclusive()}
	w.logf("%s: acquired %q, fence %d, shared: %v", q.Token, q.Name, fence, l.shared)
	if !l.valid(w.now) {
		o.cancel(q)
		return nil
	}
	w.grants++
	w.leases[q.Name] = append(w.leases[q.Name], l)
	w.checkExclusion(l)
	last := w.fences[q.Name]
	if l.shared {
		last = w.exclusiveFences[q.Name]
	}
	if fence <= last {
		w.violationf("fence %d of %q after %d", fence, q.Name, last)
	}
	w.recordFence(l)
	if !w.noRenewal {
		o.c.start(o.name+" renewal", func(r *worker) { r.renew(l, ttl < q.TTL) })
	}
	return l
}

func (w *world) recordFence(l *lease) {
	w.fences[l.Name] = max(w.fences[l.Name], l.fence)
	if !l.shared {
		w.exclusiveFences[l.Name] = max(w.exclusiveFences[l.Name], l.fence)
	}
}

// checkExclusion checks that no other lease conflicts with this lease.
func (w *world) checkExclusion(l *lease) {
	w.leases[l.Name] = slices.DeleteFunc(w.leases[l.Name], func(o *lease) bool { return !o.valid(w.now) })
	for _, other := range w.leases[l.Name] {
		if other != l && (!other.shared || !l.shared) {
			w.violationf("%q is held by %s and %s", l.Name, other.Token, l.Token)
		}
	}
}

// renew renews a lease until it ends: at once after a hand-off, and then after each third of its
// TTL.
func (o *worker) renew(l *lease, atOnce bool) {
	w := o.w
	for pause := l.TTL / 3; ; atOnce = false {
		if !atOnce {
			o.sleep(pause)
		}
		if !l.valid(w.now) {
			return
		}
		sent := w.now
		h := driver.ExtendRequest{Name: l.Name, Token: l.Token, Client: l.Client, Fence: l.fence, TTL: l.TTL, Weight: l.Weight, Limit: l.Limit}
		c := o.call(func(c *Call) Effects {
			return o.c.machine.Extend(c, []driver.ExtendRequest{h}, sent.Add(driver.OperationTimeout), sent)
		})
		switch err := c.Errs[0]; {
		case !l.valid(w.now):
			return
		case err == nil:
			l.deadline, pause = later(l.deadline, sent.Add(l.TTL-margin(l.TTL))), l.TTL/3
		case errors.Is(err, driver.ErrLost):
			w.checkLoss(l)
			l.ended = true
		default:
			pause = 50 * time.Millisecond
		}
	}
}

// checkLoss checks that a lease reported as lost has no majority.
func (w *world) checkLoss(l *lease) {
	votes := 0
	for _, s := range w.servers {
		if s.holds(l.Name, l.Token) {
			votes++
		}
	}
	if votes > w.Nodes/2 {
		w.violationf("%q was reported as lost for %s, but %d of %d nodes still have it", l.Name, l.Token, votes, w.Nodes)
	}
}

// hold lets time pass while a lease is valid.
func (o *worker) hold(l *lease, d time.Duration) {
	for end := o.w.now.Add(d); l.valid(o.w.now) && o.w.now.Before(end); {
		o.sleep(min(end.Sub(o.w.now), 100*time.Millisecond))
	}
}

// unlock releases a lease, as often as it takes.
func (o *worker) unlock(l *lease) {
	l.ended = true
	for range 200 {
		r := driver.ReleaseRequest{Name: l.Name, Token: l.Token, Fence: l.fence, Until: o.w.now.Add(driver.OperationTimeout), LastUse: true}
		if c := o.call(func(c *Call) Effects { return o.c.machine.Release(c, r, o.w.now) }); c.Err == nil {
			return
		}
		o.sleep(50 * time.Millisecond)
	}
}

// resize makes a reader a writer, or a writer a reader. It reports whether this succeeded.
func (o *worker) resize(l *lease, weight int) bool {
	q := l.AcquireRequest
	q.Weight, q.Until = weight, o.w.now.Add(driver.OperationTimeout)
	c := o.call(func(c *Call) Effects { return o.c.machine.Resize(c, q, o.w.now) })
	if c.Err != nil || !c.Reply.Held {
		return false
	}
	l.Weight, l.fence = weight, c.Reply.Fence
	return true
}

var worldNames = []string{"a", "b", "c"}

// request returns a new request, or reuses the token of an earlier request with a confirmed end.
func (o *worker) request() driver.AcquireRequest {
	w := o.w
	q := driver.AcquireRequest{Name: worldNames[w.rng.IntN(len(worldNames))], Client: o.c.name, TTL: w.ttl, Weight: 1, Limit: 1}
	if o.tokens == 0 || !w.oneIn(3) {
		o.tokens++
	}
	q.Token = fmt.Sprint(o.name, ":", o.tokens)
	switch w.rng.IntN(10) {
	case 0, 1, 2:
		q.Limit = driver.Unlimited
	case 3:
		q.Weight, q.Limit = driver.Unlimited, driver.Unlimited
	}
	return q
}

// work acquires and releases names until the end.
func (o *worker) work() {
	w := o.w
	for w.now.Before(w.end) {
		o.sleep(w.random(50 * time.Millisecond))
		q := o.request()
		wait := time.Duration(0)
		if !w.oneIn(3) {
			wait = w.random(3 * time.Second)
		}
		hold := w.random(100 * time.Millisecond)
		if w.oneIn(8) {
			hold = w.random(3 * shortTTL)
		}
		if w.noRenewal {
			hold += w.ttl
		}
		l := o.lock(q, wait)
		if l == nil {
			o.cancel(q) // its token may be used again
			continue
		}
		o.hold(l, hold)
		if l.shared && l.valid(w.now) && w.oneIn(2) && o.resize(l, driver.Unlimited) && l.valid(w.now) {
			w.logf("%s: upgraded %q, fence %d", l.Token, l.Name, l.fence)
			l.shared = false
			w.checkExclusion(l)
			w.recordFence(l)
			o.hold(l, hold)
			l.shared = true
			o.resize(l, 1)
		}
		o.unlock(l)
	}
}

// checkAvailable checks that every name can be locked after the faults.
func (o *worker) checkAvailable() {
	const soon = 4*shortTTL + 2*driver.WaiterTTL // also with long leases: all were released, so none needs to expire
	for _, name := range worldNames {
		start := o.w.now
		var l *lease
		for l == nil && o.w.now.Sub(start) < soon {
			o.tokens++
			token := fmt.Sprint(o.name, ":", o.tokens)
			l = o.lock(driver.AcquireRequest{Name: name, Token: token, Client: o.c.name, TTL: o.w.ttl, Weight: 1, Limit: 1}, soon)
		}
		if l == nil {
			o.w.violationf("%s cannot lock %q within %v after the faults have ended", o.name, name, soon)
			continue
		}
		o.unlock(l)
	}
}

// injectFault injects a fault, ends it some time later, and schedules the next fault.
func (w *world) injectFault() {
	if !w.now.Before(w.end) {
		return
	}
	client := w.clients[w.rng.IntN(len(w.clients))]
	node := w.rng.IntN(w.Nodes)
	s, l := w.servers[node], client.links[node]
	pause := w.random(400 * time.Millisecond)
	switch w.rng.IntN(9) {
	case 0:
		w.logf("node %d stops", node)
		s.down = true
		pause += w.random(shortTTL)
		w.after(pause, func() { s.down = false })
	case 1:
		if w.losesData {
			w.logf("node %d loses its data", node)
			s.restart(node)
		}
	case 2:
		w.logf("%s is cut from node %d", client.name, node)
		l.cut = true
		pause += w.random(2 * shortTTL)
		w.after(pause, func() { l.cut = false })
	case 3:
		w.logf("%s is suspended", client.name)
		client.frozenUntil = w.now.Add(w.random(w.suspension()))
	case 4:
		l.delay = w.random(300 * time.Millisecond)
	case 5:
		steps := []time.Duration{-time.Hour, -300 * time.Millisecond, 300 * time.Millisecond, 6 * time.Second}
		s.set += steps[w.rng.IntN(len(steps))]
		w.logf("the wall clock of node %d is set to %v", node, s.now().Wall)
	default:
		until := w.now.Add(w.random(200 * time.Millisecond))
		for _, l := range client.links {
			l.resetUntil = until
		}
	}
	w.after(pause, w.injectFault)
}

// suspension returns the longest time for which a process is suspended: sometimes it is more
// than a queue entry lives without a heartbeat.
func (w *world) suspension() time.Duration {
	if w.oneIn(4) {
		return 2 * driver.WaiterTTL
	}
	return 2 * shortTTL
}

// simulate runs a world to its end and returns it.
func simulate(seed uint64, c conditions, logging bool) *world {
	const clients, workers, span = 5, 2, 12 * time.Second
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	w := &world{
		conditions: c, rng: rand.New(rand.NewPCG(seed, 1)), now: begin, begin: begin, end: begin.Add(span), logging: logging,
		leases: make(map[string][]*lease), fences: make(map[string]uint64), exclusiveFences: make(map[string]uint64),
	}
	for i := range c.Nodes {
		s := &server{w: w, rate: 1 + c.clockDrift*(2*w.rng.Float64()-1)}
		s.restart(i)
		w.servers = append(w.servers, s)
	}
	for i := range clients {
		cl := &client{w: w, name: fmt.Sprint("client-", i), machine: New(c.Config), workers: make(map[string]*worker), calls: make(map[*Call]*worker)}
		for range c.Nodes {
			cl.links = append(cl.links, new(link))
		}
		w.clients = append(w.clients, cl)
		for n := range workers {
			cl.start(fmt.Sprintf("%s.%d", cl.name, n), (*worker).work)
		}
	}
	w.after(0, w.injectFault)
	w.run(w.end)
	for _, s := range w.servers {
		s.down = false
	}
	for _, cl := range w.clients {
		for _, l := range cl.links {
			l.cut, l.delay = false, 0
		}
	}
	w.run(w.end.Add(3 * c.ttl)) // the last calls end
	for _, cl := range w.clients {
		cl.start(cl.name+" check", (*worker).checkAvailable)
	}
	w.run(w.now.Add(10 * time.Minute))
	w.checkEnd()
	return w
}

// checkEnd checks that nothing is left after all work: no released lease on a node, and no state in
// a machine.
func (w *world) checkEnd() {
	if len(w.events.heap) > 0 {
		w.violationf("%d events never end", len(w.events.heap))
	}
	for i, s := range w.servers {
		for _, name := range worldNames {
			for _, h := range s.table.Inspect(name, locktable.Now{}).Holders {
				if slices.ContainsFunc(s.table.Names[name].Holders, func(o locktable.Holder) bool { return o.Token == h.Token && o.Expires > s.now().At }) {
					w.violationf("node %d still has %q for %s, which has released it", i, name, h.Token)
				}
			}
		}
	}
	for _, c := range w.clients {
		m := c.machine
		if n := len(m.acquisitions) + len(m.byToken) + len(m.renewals) + len(m.alarms.heap) + len(c.calls); n > 0 {
			w.violationf("%s: %d acquisitions, %d tokens, %d renewals, %d alarms and %d calls are left", c.name,
				len(m.acquisitions), len(m.byToken), len(m.renewals), len(m.alarms.heap), len(c.calls))
		}
	}
}

// TestSimulation checks a quorum under its assumed conditions: leases exclude each other, fences
// grow, no name stays locked, and nothing is left behind.
func TestSimulation(t *testing.T) {
	if *seedFlag != 0 {
		w := simulate(*seedFlag, defaultConditions(*seedFlag), true)
		for _, line := range w.log {
			t.Log(line)
		}
		w.report(t, *seedFlag)
		return
	}
	var first, last uint64
	if _, err := fmt.Sscanf(*seedsFlag, "%d-%d", &first, &last); err != nil {
		t.Fatalf("-seeds %s: %v", *seedsFlag, err)
	}
	const lots = 4
	var grants atomic.Int64
	start := time.Now()
	t.Cleanup(func() {
		t.Logf("FIGURE %d seeds, %d grants, in %v", last-first+1, grants.Load(), time.Since(start).Round(time.Second))
	})
	for lot := range uint64(lots) {
		t.Run(fmt.Sprint(lot), func(t *testing.T) {
			t.Parallel()
			for seed := first + lot; seed <= last && !t.Failed(); seed += lots {
				w := simulate(seed, defaultConditions(seed), false)
				grants.Add(int64(w.grants))
				w.report(t, seed)
			}
		})
	}
}

func (w *world) report(t *testing.T, seed uint64) {
	t.Helper()
	for _, found := range w.violations[:min(len(w.violations), 3)] {
		t.Errorf("seed %d, %d nodes: %s", seed, w.Nodes, found)
	}
}

// TestSimulationSees checks that the simulation detects deliberately broken quorums.
func TestSimulationSees(t *testing.T) {
	for name, sabotage := range map[string]func(*conditions){
		"no recovery window":            func(c *conditions) { c.RecoveryWindow = 0 },
		"one vote less than a majority": func(c *conditions) { c.Majority = max(c.Majority-1, 1) },
		"clocks drift more than allowed": func(c *conditions) {
			c.clockDrift, c.noRenewal, c.ttl, c.RecoveryWindow = 0.05, true, shortTTL, shortTTL
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 2000; seed++ {
				c := defaultConditions(seed)
				sabotage(&c)
				if w := simulate(seed, c, false); len(w.violations) > 0 {
					t.Logf("FIGURE seed %d: %s", seed, w.violations[0])
					return
				}
			}
			t.Error("no violation found in 2000 seeds")
		})
	}
}

// TestSimulationRepeats checks that a seed repeats every message in its run.
func TestSimulationRepeats(t *testing.T) {
	for seed := uint64(1); seed <= 50; seed++ {
		one, two := simulate(seed, defaultConditions(seed), false), simulate(seed, defaultConditions(seed), false)
		if one.digest != two.digest || one.grants != two.grants {
			t.Errorf("seed %d: digest %x with %d grants, then %x with %d", seed, one.digest, one.grants, two.digest, two.grants)
		}
	}
}
