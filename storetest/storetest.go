// Package storetest checks that a dibs.Store keeps the law. Each case says which
// law it checks, so that an author of a store learns what was promised from what
// fails.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) dibs.Store { return mystore.New(…) })
//	}
//
// A store that keeps time in this process alone runs faster, and exactly, with
// RunInBubble.
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
)

// A Case checks one law on an empty store, or on names that nobody else uses.
type Case struct {
	Name string
	Law  string
	Run  func(t *testing.T, s dibs.Store)
}

// Run runs all cases, each on a store of its own, side by side.
func Run(t *testing.T, open func(t *testing.T) dibs.Store) { run(t, Cases(), open) }

// RunInBubble runs all cases, each in a testing/synctest bubble.
func RunInBubble(t *testing.T, open func(t *testing.T) dibs.Store) { runInBubble(t, Cases(), open) }

func run(t *testing.T, cases []Case, open func(t *testing.T) dibs.Store) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			explain(t, c)
			c.Run(t, open(t))
		})
	}
}

func runInBubble(t *testing.T, cases []Case, open func(t *testing.T) dibs.Store) {
	for i, c := range cases {
		check := c.Run
		cases[i].Run = func(t *testing.T, _ dibs.Store) {
			synctest.Test(t, func(t *testing.T) { check(t, open(t)) })
		}
	}
	run(t, cases, func(*testing.T) dibs.Store { return nil })
}

func explain(t *testing.T, c Case) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the law: %s", c.Law)
		}
	})
}

// Cases returns all cases.
func Cases() []Case {
	return slices.Concat(nameCases(), partCases(), setCases())
}

func nameCases() []Case {
	return []Case{
		{"exclusion", "never two unexpired leases on one name", exclusion},
		{"idempotent acquire", "a token that holds is answered Held again, with a fence that is not smaller, and its life is not shortened", idempotent},
		{"owner only", "a release or an extension with another token changes nothing and says so", ownerOnly},
		{"expiry", "a lease that nobody renews ends with its TTL, not before and not long after", expiry},
		{"fifo", "many waiters are served in the order in which they asked", fifo},
		{"dead waiter", "a waiter that gives no sign of life for a claim TTL is not served", deadWaiter},
		{"dead head", "a waiter that died after it was served costs a claim TTL at most, not its lease", deadHead},
		{"one wakes", "a release tells exactly one waiter, which already holds", oneWakes},
		{"fences grow", "a fence is larger than all before it for that name, whichever way the name changed hands", fencesGrow},
		{"abandon", "an abandoned claim neither holds nor queues, and its name is handed on", abandon},
		{"extend", "an extension never resurrects, never shortens, and answers for each lease by itself", extend},
		{"missed push", "a waiter whose message is lost finds its lease by asking again", missedPush},
		{"ticket", "the event of a grant bears the ticket of the last answer to that place", ticket},
		{"new place", "a waiter that has lost its place gets a new ticket, so that an old event cannot pass for a new one", newPlace},
		{"try does not queue", "a claim that does not queue leaves nothing behind, and does not overtake who waits", tryDoesNotQueue},
		{"expired with waiters", "a name whose holder expired goes to the first that waits, whoever notices", expiredWithWaiters},
		{"void", "a claim is neither granted nor queued after its time", void},
		{"void release", "a release or abandon changes nothing after its time", voidRelease},
		{"keep", "a release with Keep leaves the name taken for that long, and the first waiter is told to ask again", keep},
		{"inspect", "inspect and list tell who holds and who waits, and for how long", inspect},
		{"bad names", "a bad name is ErrInvalid and changes nothing", badNames},
		{"any name", "each name of up to 512 bytes of UTF-8 without stray braces is a name of its own", anyName},
		{"ended context", "a call whose context has ended fails at once, as unavailable", endedContext},
		{"clients", "many clients, each with many goroutines, hold one name one at a time", clients},
	}
}

// ttl is short enough to wait for, and long enough for a busy machine.
const ttl = 400 * time.Millisecond

// patience is how long a busy machine may take for one operation.
const patience = 30 * time.Second

// within returns a context for one operation that has no deadline of its own.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// A party is a client of a store, without dibs.Client around it.
type party struct {
	t      *testing.T
	s      dibs.Store
	client string
	seq    uint64
	events chan dibs.Event
	counts bool // the store does, as was tried
}

var parties atomic.Uint64

// join returns a party that hears its events.
func join(t *testing.T, s dibs.Store) *party {
	t.Helper()
	p := mute(t, s)
	p.events = make(chan dibs.Event, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Watch(ctx, p.client, func(e dibs.Event) { p.events <- e })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	if e := p.event(); e.Kind != dibs.Up {
		t.Fatalf("first event %+v, want Up", e)
	}
	return p
}

// mute returns a party that does not listen.
func mute(t *testing.T, s dibs.Store) *party {
	return &party{t: t, s: s, client: fmt.Sprintf("host:%d:storetest", parties.Add(1))}
}

// claim returns a new claim of the party, which queues.
func (p *party) claim(name string) dibs.Claim {
	p.seq++
	return dibs.Claim{
		Name: name, Token: fmt.Sprintf("%s:%d", p.client, p.seq), Client: p.client, Seq: p.seq,
		TTL: time.Minute, Weight: 1, Limit: 1, Queue: true,
	}
}

func (p *party) ask(c dibs.Claim) dibs.Answer {
	p.t.Helper()
	c.Until = time.Now().Add(patience)
	a, err := p.s.Acquire(p.t.Context(), c)
	if err != nil {
		p.t.Fatalf("acquire %q: %v", c.Name, err)
	}
	return a
}

func (p *party) take(c dibs.Claim) dibs.Answer {
	p.t.Helper()
	a := p.ask(c)
	if !a.Held || a.Fence == 0 {
		p.t.Fatalf("acquire %q: %+v, want held", c.Name, a)
	}
	return a
}

// obtain takes a free name and returns the fence. A store that is made of several may not
// have freed it in all of them yet: then it is granted a moment later.
func (p *party) obtain(c dibs.Claim) uint64 {
	p.t.Helper()
	if a := p.ask(c); a.Held {
		return a.Fence
	}
	return p.granted(c).Fence
}

func (p *party) wait(c dibs.Claim, position int) dibs.Answer {
	p.t.Helper()
	a := p.ask(c)
	if a.Held || a.Ticket == 0 || a.Position != position {
		p.t.Fatalf("acquire %q: %+v, want to wait at position %d", c.Name, a, position)
	}
	return a
}

func (p *party) release(c dibs.Claim, fence uint64) bool {
	p.t.Helper()
	r := dibs.Release{Name: c.Name, Token: c.Token, Fence: fence, Until: time.Now().Add(patience)}
	freed, err := p.s.Release(p.t.Context(), r)
	if errors.Is(err, dibs.ErrUnavailable) && p.holder(c.Name) != c.Token {
		return true // its outcome was unknown, and is not now
	}
	if err != nil {
		p.t.Fatalf("release %q: %v", c.Name, err)
	}
	return freed
}

// becomes asks until a claim holds, which it must from a certain time on: a request that
// is sent a good while later is not refused, however long a busy machine takes for it.
func (p *party) becomes(c dibs.Claim, due time.Time) {
	p.t.Helper()
	const grace = 2 * time.Second
	for {
		asked := time.Now()
		if p.ask(c).Held {
			return
		}
		if late := asked.Sub(due); late > grace {
			p.t.Fatalf("acquire %q: refused %v after it was due", c.Name, late)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *party) free(c dibs.Claim, fence uint64) {
	p.t.Helper()
	if !p.release(c, fence) {
		p.t.Fatalf("release %q by its holder: not held", c.Name)
	}
}

// extend extends by one who does not know the fence.
func (p *party) extend(c dibs.Claim, d time.Duration) error {
	return p.s.Extend(within(p.t), []dibs.Hold{{Name: c.Name, Token: c.Token, Client: c.Client, TTL: d}})[0]
}

// event returns the next event.
func (p *party) event() dibs.Event {
	p.t.Helper()
	select {
	case e := <-p.events:
		return e
	case <-time.After(patience):
		p.t.Fatalf("no event within %v", patience)
		return dibs.Event{}
	}
}

// granted returns the next event, which must be the grant of a claim.
func (p *party) granted(c dibs.Claim) dibs.Event {
	p.t.Helper()
	e := p.event()
	if e.Kind != dibs.Granted || e.Token != c.Token {
		p.t.Fatalf("event %+v, want the grant of %s", e, c.Token)
	}
	return e
}

// served waits until a claim is served, or told that it may ask, and returns its fence.
func (p *party) served(c dibs.Claim) uint64 {
	p.t.Helper()
	switch e := p.event(); {
	case e.Kind == dibs.Granted && e.Token == c.Token:
		return e.Fence
	case e.Kind == dibs.Look && e.Token == c.Token:
		return p.take(c).Fence
	default:
		p.t.Fatalf("event %+v, want the grant of %s", e, c.Token)
		return 0
	}
}

// A case that needs what lasts for ttl only begins again, with another name, on a machine
// that stood still for so long.
const tries = 10

func (p *party) silent(d time.Duration) {
	p.t.Helper()
	select {
	case e := <-p.events:
		p.t.Fatalf("unexpected event %+v", e)
	case <-time.After(d):
	}
}

// holder returns the token that holds a name, or "".
func (p *party) holder(name string) string {
	p.t.Helper()
	state, err := p.s.Inspect(within(p.t), name)
	if err != nil {
		p.t.Fatalf("inspect %q: %v", name, err)
	}
	if len(state.Holders) == 0 {
		return ""
	}
	return state.Holders[0].Token
}

func (p *party) wantHolder(name, token string) {
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

// oddNames are names that a store might stumble on.
func oddNames() []string {
	return []string{
		" ", "a", "a b", "order:42", "{user:7}:cart", "x{y}z", "{{a}}", "naïve/路/🔒", "a\x00b", "a\r\nb", "*", "?[a-z]\\",
		"$1", "'; return 1 --", `"quoted"`, strings.Repeat("n", dibs.MaxName), "lock:lock:", "%s%d%n", "-inf", "+", "(1", "0", "nil", "a{",
	}
}
