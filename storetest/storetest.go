// Package storetest is the conformance suite of driver.Store. Each case names its requirement, so a
// failure shows the broken rule of the contract.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) driver.Store { return mystore.New(…) })
//	}
//
// Use RunSynctest for a store whose only clock is this process's: it runs faster, and time is
// exact. Also use RunClocks for a store shared by several processes: it opens the store twice, with
// different clocks.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// A Case checks a single requirement. It needs an empty store, or names that no other test uses.
type Case struct {
	Name        string
	Requirement string
	Run         func(t *testing.T, s *driver.Full) // skips itself if the store lacks the tested interface
}

// Run runs all cases in parallel, each on its own store.
func Run(t *testing.T, open func(t *testing.T) driver.Store) {
	run(t, append(Cases(), LostReplyCases()...), open)
}

// RunSynctest runs all cases, each in a testing/synctest bubble.
func RunSynctest(t *testing.T, open func(t *testing.T) driver.Store) {
	runSynctest(t, append(Cases(), LostReplyCases()...), open)
}

func run(t *testing.T, cases []Case, open func(t *testing.T) driver.Store) {
	runEach(t, cases, completing(t, open))
}

func runSynctest(t *testing.T, cases []Case, open func(t *testing.T) driver.Store) {
	complete := completing(t, open)
	for i, c := range cases {
		check := c.Run
		cases[i].Run = func(t *testing.T, _ *driver.Full) {
			synctest.Test(t, func(t *testing.T) { check(t, complete(t)) })
		}
	}
	runEach(t, cases, func(*testing.T) *driver.Full { return nil })
}

func runEach(t *testing.T, cases []Case, open func(t *testing.T) *driver.Full) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			logRequirement(t, c.Requirement)
			c.Run(t, open(t))
		})
	}
}

func logRequirement(t *testing.T, requirement string) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("requirement: %s", requirement)
		}
	})
}

// Cases returns all cases of driver.Store. VoteCases returns the cases for a quorum node.
func Cases() []Case {
	return slices.Concat(nameCases(), silenceCases(), sharedCases(), multiCases(), wantedCases(), fenceCases(), stateCases(), revokeTokenCases())
}

func nameCases() []Case {
	return []Case{
		{"exclusion", "a name never has two unexpired exclusive leases", exclusion},
		{"idempotent acquire", "a repeated acquire of a held token returns Held, with a fence that is not smaller, and does not shorten the lease", idempotent},
		{"owner only", "a release or extension with another token changes nothing and reports that", ownerOnly},
		{"expiry", "a lease that is not renewed ends at its TTL, not before and not much later", expiry},
		{"fifo", "many waiters are served in the order of their requests", fifo},
		{"dead waiter", "a waiter without a heartbeat for a waiter TTL is not served, unless its process is known to be alive", deadWaiter},
		{"dead first waiter", "a waiter that died before it was granted the lock costs at most a waiter TTL, not its lease TTL", deadFirstWaiter},
		{"one grant", "a release notifies exactly one waiter, which already holds the lock", oneGrant},
		{"fences grow", "a fence is larger than all earlier fences of that name, however the lock changed owners", fencesGrow},
		{"cancel", "a cancelled request neither holds nor queues, and its lock is handed off", cancel},
		{"extend repeatedly", "a lease keeps its fence when it is extended, and no other token extends it", extendRepeatedly},
		{"extend", "an extension never restores or shortens a lease, and returns a result for each lease", extend},
		{"missed notification", "a waiter whose notification is lost gets its lease by a repeated acquire", missedNotification},
		{"ticket", "the event of a grant has the ticket of the last reply to that waiter", ticket},
		{"new ticket", "a waiter that lost its queue entry gets a new ticket, so that an old event cannot be mistaken for a new one", newTicket},
		{"try does not queue", "a request that does not queue leaves nothing behind, and does not overtake waiters", tryDoesNotQueue},
		{"expired with waiters", "when a lease expires, the lock goes to the first waiter, whichever request detects it", expiredWithWaiters},
		{"expired request", "a request is neither granted nor queued after its Until", expiredRequest},
		{"expired release", "a release or cancel changes nothing after its Until", expiredRelease},
		{"reserve", "a release with Reserve keeps the name unavailable for that long, and notifies the first waiter to retry", reserve},
		{"reserve for long", "a lease and a reservation may last for 366 days", reserveForLong},
		{"unreserve", "a reservation is ended by its token, and no lease is", unreserve},
		{"inspect", "Inspect and List return holders, waiters and their times", inspect},
		{"invalid names", "an invalid name returns ErrInvalid and changes nothing", invalidNames},
		{"any name", "names of up to 512 bytes of UTF-8 without stray braces are distinct", anyName},
		{"ended context", "a call with an ended context fails at once with ErrUnavailable", endedContext},
		{"clients", "many clients with many goroutines hold one lock one at a time", clients},
	}
}

// ttl is short enough to wait for, and long enough for a busy machine.
const ttl = 400 * time.Millisecond

// operationTimeout allows for a busy machine.
const operationTimeout = 30 * time.Second

// operationContext returns a context for an operation without its own deadline.
func operationContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), operationTimeout)
	t.Cleanup(cancel)
	return ctx
}

// A testClient is a store's client without a dibs.Client.
type testClient struct {
	t              *testing.T
	s              *driver.Full
	client         string
	seq            uint64
	events         chan driver.Event
	tickets        map[string]uint64 // each token's last ticket
	confirmed      map[string]bool   // tokens whose grant was not seen as an event, and may still arrive
	permitsChecked bool              // the store supports permits
	limits         driver.Limits
}

var clientCount atomic.Uint64

// clientID is as long as the random part of a dibs.Client, so a store can recognise tokens.
const clientID = "storetestAAAAAAA"

// newClient returns a client that receives events.
func newClient(t *testing.T, s *driver.Full) *testClient {
	t.Helper()
	p := newSilentClient(t, s)
	p.events = make(chan driver.Event, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	var failed error // valid after ended
	go func() {
		defer close(ended)
		failed = s.Watch(ctx, p.client, nil, func(e driver.Event) { p.events <- e })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	select {
	case e := <-p.events:
		if e.Kind != driver.EventConnected {
			t.Fatalf("first event %+v, want EventConnected", e)
		}
	case <-ended:
		t.Skipf("the store has no notifications: Watch returned %v", failed)
	case <-time.After(operationTimeout):
		t.Fatalf("not connected within %v", operationTimeout)
	}
	return p
}

// newSilentClient returns a client without a watch.
func newSilentClient(t *testing.T, s *driver.Full) *testClient {
	return &testClient{
		t: t, s: s, client: fmt.Sprintf("host:%d:%s", clientCount.Add(1), clientID),
		tickets: make(map[string]uint64), confirmed: make(map[string]bool), limits: driver.LimitsOf(s),
	}
}

// shortTTL returns a TTL that the store accepts, and that is short enough to wait for.
func (p *testClient) shortTTL() time.Duration { return max(ttl, p.limits.MinTTL) }

// sleepPast waits until a lease with a TTL has ended.
func (p *testClient) sleepPast(ttl time.Duration) {
	time.Sleep(ttl + 20*time.Millisecond + p.limits.Late)
}

// shortHandoff returns the shortest TTL for a request, and how long a hand-off to it can last
// without a renewal.
func (p *testClient) shortHandoff() (ttl, longest time.Duration) {
	const short = 50 * time.Millisecond
	if p.limits.MinTTL <= short {
		return short, short
	}
	return p.limits.MinTTL, p.limits.WaiterTTL
}

// newRequest returns a new request from the client, which queues.
func (p *testClient) newRequest(name string) driver.AcquireRequest {
	p.seq++
	return driver.AcquireRequest{
		Name: name, Token: fmt.Sprintf("%s:%d", p.client, p.seq), Client: p.client, Seq: p.seq,
		TTL: time.Minute, Weight: 1, Limit: 1, Queue: true,
	}
}

func (p *testClient) acquire(r driver.AcquireRequest) driver.AcquireReply {
	p.t.Helper()
	r.Until = time.Now().Add(operationTimeout)
	a, err := p.s.Acquire(p.t.Context(), r)
	if err != nil {
		p.t.Fatalf("acquire %q: %v", r.Name, err)
	}
	if a.Ticket != 0 {
		p.tickets[r.Token] = a.Ticket
	}
	return a
}

func (p *testClient) mustAcquire(r driver.AcquireRequest) driver.AcquireReply {
	p.t.Helper()
	a := p.acquire(r)
	if !a.Held || a.Fence == 0 {
		p.t.Fatalf("acquire %q: %+v, want held", r.Name, a)
	}
	return a
}

// acquireSoon acquires a free name and returns the fence. In a store with several nodes, some nodes
// may not have released the name yet; then the grant arrives as an event.
func (p *testClient) acquireSoon(r driver.AcquireRequest) uint64 {
	p.t.Helper()
	if a := p.acquire(r); a.Held {
		return a.Fence
	}
	return p.wantGranted(r).Fence
}

func (p *testClient) mustQueue(r driver.AcquireRequest, position int) driver.AcquireReply {
	p.t.Helper()
	a := p.acquire(r)
	least := min(position, 101) // a store may count up to 100 waiters
	if a.Held || a.Ticket == 0 || a.Position < least || a.Position > position {
		p.t.Fatalf("acquire %q: %+v, want it queued at position %d", r.Name, a, position)
	}
	return a
}

func (p *testClient) release(request driver.AcquireRequest, fence uint64) bool {
	p.t.Helper()
	r := driver.ReleaseRequest{Name: request.Name, Token: request.Token, Fence: fence, Until: time.Now().Add(operationTimeout)}
	freed, err := p.s.Release(p.t.Context(), r)
	if errors.Is(err, dibs.ErrUnavailable) && p.holder(request.Name) != request.Token {
		return true // the outcome was unknown; the name is released now
	}
	if err != nil {
		p.t.Fatalf("release %q: %v", request.Name, err)
	}
	return freed
}

// acquireBy repeats an acquire until it succeeds, which it must from due on. A request
// sent well after due must not be refused, however long a busy machine takes for it.
func (p *testClient) acquireBy(r driver.AcquireRequest, due time.Time) {
	p.t.Helper()
	grace := 2*time.Second + p.limits.Late
	for {
		sent := time.Now()
		if p.acquire(r).Held {
			return
		}
		if late := sent.Sub(due); late > grace {
			p.t.Fatalf("acquire %q: refused %v after the lock was due", r.Name, late)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *testClient) mustRelease(r driver.AcquireRequest, fence uint64) {
	p.t.Helper()
	if !p.release(r, fence) {
		p.t.Fatalf("release %q by its holder: not held", r.Name)
	}
}

// extend sends an extension without the fence.
func (p *testClient) extend(r driver.AcquireRequest, d time.Duration) error {
	return p.s.Extend(operationContext(p.t), []driver.ExtendRequest{{Name: r.Name, Token: r.Token, Client: r.Client, TTL: d}})[0]
}

// anyEvent returns the next event.
func (p *testClient) anyEvent() driver.Event {
	p.t.Helper()
	select {
	case e := <-p.events:
		return e
	case <-time.After(operationTimeout):
		p.t.Fatalf("no event within %v", operationTimeout)
		return driver.Event{}
	}
}

// isHint reports whether an event says nothing about a request. A store may reconnect at
// any time, for instance after the machine was suspended.
func (p *testClient) isHint(e driver.Event) bool {
	switch e.Kind {
	case driver.EventConnected, driver.EventDisconnected, driver.EventFailover:
		return true
	case driver.EventGranted:
		late := p.confirmed[e.Token]
		delete(p.confirmed, e.Token)
		return late
	default:
		return false
	}
}

// nextEvent returns the next event about a request.
func (p *testClient) nextEvent() driver.Event {
	p.t.Helper()
	e, ok := p.eventWithin(operationTimeout)
	if !ok {
		p.t.Fatalf("no event within %v", operationTimeout)
	}
	return e
}

// eventWithin returns the next event about a request, or false if there is none within d.
func (p *testClient) eventWithin(d time.Duration) (driver.Event, bool) {
	for end := time.After(d); ; {
		select {
		case e := <-p.events:
			if !p.isHint(e) {
				return e, true
			}
		case <-end:
			return driver.Event{}, false
		}
	}
}

// nextEventOf returns the next event about a request, while c waits. After the store reconnected,
// it repeats c, as a client should: the grant may have been lost. A store can notify other waiters
// to retry at any time, for instance silent ones.
func (p *testClient) nextEventOf(r driver.AcquireRequest) driver.Event {
	p.t.Helper()
	for {
		e := p.anyEvent()
		if e.Kind == driver.EventRetry && e.Token != r.Token {
			continue
		}
		if !p.isHint(e) {
			return e
		}
		if e.Kind != driver.EventConnected && e.Kind != driver.EventFailover {
			continue
		}
		if a := p.acquire(r); a.Held {
			p.confirmed[r.Token] = true
			return driver.Event{Kind: driver.EventGranted, Token: r.Token, Fence: a.Fence, Ticket: p.tickets[r.Token]}
		}
	}
}

// wantGranted returns the next event, which must be the grant of c.
func (p *testClient) wantGranted(r driver.AcquireRequest) driver.Event {
	p.t.Helper()
	e := p.nextEventOf(r)
	if e.Kind != driver.EventGranted || e.Token != r.Token {
		p.t.Fatalf("event %+v, want the grant of %s", e, r.Token)
	}
	return e
}

// wantServed waits until c is granted, or notified to retry and then acquired. It returns
// the fence.
func (p *testClient) wantServed(r driver.AcquireRequest) uint64 {
	p.t.Helper()
	switch e := p.nextEventOf(r); {
	case e.Kind == driver.EventGranted && e.Token == r.Token:
		return e.Fence
	case e.Kind == driver.EventRetry && e.Token == r.Token:
		return p.mustAcquire(r).Fence
	default:
		p.t.Fatalf("event %+v, want the grant of %s", e, r.Token)
		return 0
	}
}

// tries is how often a case starts again with another name because the machine was
// suspended for longer than ttl.
const tries = 10

func (p *testClient) wantNoEvent(d time.Duration) {
	p.t.Helper()
	if e, ok := p.eventWithin(d); ok {
		p.t.Fatalf("unexpected event %+v", e)
	}
}

// wantNoGrant fails if an event other than a retry arrives within d.
func (p *testClient) wantNoGrant(d time.Duration) {
	p.t.Helper()
	for end := time.Now().Add(d); ; {
		e, ok := p.eventWithin(time.Until(end))
		if !ok {
			return
		}
		if e.Kind != driver.EventRetry {
			p.t.Fatalf("unexpected event %+v", e)
		}
	}
}

// holder returns the token of a name's holder, or "".
func (p *testClient) holder(name string) string {
	p.t.Helper()
	token, _ := p.firstHolder(name)
	return token
}

// firstHolder returns a name's first holder, and its remaining time. In a store without states, the
// reply to another request contains both.
func (p *testClient) firstHolder(name string) (token string, remaining time.Duration) {
	p.t.Helper()
	if !p.s.Has("Inspector") {
		r := p.newTry(name)
		a := p.acquire(r)
		p.mustCancel(r)
		return a.Holder, a.Remaining
	}
	state := p.state(name)
	if len(state.Holders) == 0 {
		return "", 0
	}
	return state.Holders[0].Token, state.Holders[0].Remaining
}

// wantUnused fails if a name has a holder or a waiter. In a store without states, another request
// should then be granted.
func (p *testClient) wantUnused(name string) {
	p.t.Helper()
	if !p.s.Has("Inspector") {
		r := p.newTry(name)
		p.mustAcquire(r)
		p.mustCancel(r)
		return
	}
	if state := p.state(name); len(state.Holders) > 0 || state.Waiting > 0 {
		p.t.Errorf("%q: %+v, want neither a holder nor a waiter", name, state)
	}
}

// wantNoWaiter fails if a request waits for a held name. In a store without states, another request
// should then be the first in the queue.
func (p *testClient) wantNoWaiter(name string) {
	p.t.Helper()
	if !p.s.Has("Inspector") {
		r := p.newRequest(name)
		p.mustQueue(r, 1)
		p.mustCancel(r)
		return
	}
	if state := p.state(name); state.Waiting != 0 {
		p.t.Errorf("%q: %+v, want no waiter", name, state)
	}
}

// isListed reports whether Inspect returns a waiter. A silent waiter is listed only if the store
// can detect that its process is alive.
func (p *testClient) isListed(r driver.AcquireRequest) bool {
	p.t.Helper()
	return slices.ContainsFunc(p.state(r.Name).Waiters, func(w driver.Waiter) bool { return w.Token == r.Token })
}

func (p *testClient) wantHolder(name, token string) {
	p.t.Helper()
	if h := p.holder(name); h != token {
		p.t.Fatalf("%q is held by %q, want %q", name, h, token)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// oddNames returns names that a store could handle wrongly.
func oddNames() []string {
	return []string{
		" ", "a", "a b", "order:42", "{user:7}:cart", "x{y}z", "{{a}}", "naïve/路/🔒", "a\x00b", "a\r\nb", "*", "?[a-z]\\",
		"$1", "'; return 1 --", `"quoted"`, strings.Repeat("n", driver.MaxName), "lock:lock:", "%s%d%n", "-inf", "+", "(1", "0", "nil", "a{",
	}
}
