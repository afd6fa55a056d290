package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
)

// The cases for states: the results of Inspect and InspectAll for holders and waiters.

func stateCases() []Case {
	return []Case{
		{"kind", "the state has the kind of each holder and waiter, as the token says, and weight and limit", kind},
		{"kind of readers", "the state has the kind of readers, and their weight and limit", kindOfReaders},
		{"kind of permits", "the state has the permits of a holder and of a waiter, and the limit of the semaphore", kindOfPermits},
		{"kind of a multi-lock", "the state of each name of a multi-lock has its kind", kindOfMulti},
		{"kind of an upgrade", "an upgraded reader is a writer, and a downgraded writer a reader", kindOfUpgrade},
		{"inspect all", "InspectAll returns for each name what Inspect returns, in the order of the names", inspectAll},
		{"inspect all shared", "InspectAll returns shared holders and their waiters as Inspect does", inspectAllShared},
		{"inspect many", "a state has the first 100 holders and waiters, and the numbers of all", inspectMany},
		{"inspect all of many", "InspectAll returns the states of 1,000 names in one call", inspectAllOfMany},
		{"inspect all of any name", "InspectAll accepts each name that can be locked", inspectAllOfAnyName},
		{"inspect all of invalid names", "InspectAll returns ErrInvalid if one of the names is invalid, and ErrUnavailable if its context has ended", inspectAllInvalid},
	}
}

// A described request is a request with its description in the states.
type described struct {
	driver.AcquireRequest
	kind  driver.Kind
	label string
	limit int // the holder's; zero: not known
}

// describe returns the request with a token as dibs makes it.
func (p *testClient) describe(r driver.AcquireRequest, kind driver.Kind, label string) described {
	random := []byte("abcdefghijklmnopqrstuvwx")
	for i, number := 0, r.Seq; number > 0; i, number = i+1, number/16 {
		random[i] = 'a' + byte(number%16)
	}
	r.Token = string(ownertoken.AppendKind([]byte(p.client+":"), kind, r.Limit)) + string(random)
	if label != "" {
		r.Token += ":" + label
	}
	return described{r, kind, label, r.Limit}
}

// chosen returns the request with a token chosen by the application.
func chosen(r driver.AcquireRequest) described {
	r.Token = fmt.Sprintf("chosen-%d", r.Seq)
	return described{AcquireRequest: r}
}

// newExclusive returns requests of each exclusive kind that needs no permits.
func (p *testClient) newExclusive() (all []described) {
	for _, kind := range []driver.Kind{driver.KindMutex, driver.KindElection, driver.KindOnce} {
		all = append(all, p.describe(p.newRequest(""), kind, "label-of-"+string(kind)))
	}
	return append(all, p.describe(p.newWriter(""), driver.KindWriter, "a:b"), chosen(p.newRequest("")))
}

// wantHolderOf checks a holder's entry.
func (p *testClient) wantHolderOf(d described) {
	p.t.Helper()
	state := p.state(d.Name)
	i := slices.IndexFunc(state.Holders, func(h driver.Holder) bool { return h.Token == d.Token })
	if i < 0 {
		p.t.Fatalf("%q: %+v, want the holder %s", d.Name, state.Holders, d.Token)
	}
	have := state.Holders[i]
	have.Fence, have.Remaining, have.Since = 0, 0, time.Time{}
	want := driver.Holder{Token: d.Token, Label: d.label, Kind: d.kind, Weight: d.Weight, Limit: d.limit}
	if d.Exclusive() {
		want.Weight = 0
	}
	if want.Limit == 0 && have.Limit == d.Limit {
		want.Limit = d.Limit // the store recorded it
	}
	if have != want {
		p.t.Errorf("%q: holder %+v, want %+v", d.Name, have, want)
	}
}

// wantWaiters checks the waiters' entries for a name, in order.
func (p *testClient) wantWaiters(name string, all ...described) {
	p.t.Helper()
	state := p.state(name)
	if state.Waiting != len(all) || len(state.Waiters) != len(all) {
		p.t.Fatalf("%q: waiters %+v (%d), want %d", name, state.Waiters, state.Waiting, len(all))
	}
	for i, d := range all {
		have := state.Waiters[i]
		have.Waited = 0
		want := driver.Waiter{Token: d.Token, Label: d.label, Kind: d.kind, Weight: d.Weight, Limit: d.AcquireRequest.Limit}
		if have != want {
			p.t.Errorf("%q: waiter %+v, want %+v", name, have, want)
		}
	}
}

func kind(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	for i, d := range p.newExclusive() {
		d.Name = fmt.Sprintf("n%d", i)
		p.mustAcquire(d.AcquireRequest)
		p.wantHolderOf(d)
	}
	waiters := p.newExclusive()
	for i := range waiters {
		waiters[i].Name = "n0"
		p.mustQueue(waiters[i].AcquireRequest, i+1)
	}
	p.wantWaiters("n0", waiters...)
}

func kindOfReaders(t *testing.T, s *driver.Full) {
	skipWithoutReaders(t, s)
	p := newClient(t, s)
	for _, d := range []described{p.describe(p.newReader("n"), driver.KindReader, "report"), chosen(p.newReader("n"))} {
		p.mustAcquire(d.AcquireRequest)
		p.wantHolderOf(d)
	}
	waiters := []described{
		p.describe(p.newWriter("n"), driver.KindWriter, ""), p.describe(p.newReader("n"), driver.KindReader, "report"), chosen(p.newReader("n")),
	}
	for i, d := range waiters {
		p.mustQueue(d.AcquireRequest, i+1)
	}
	p.wantWaiters("n", waiters...)
}

func kindOfPermits(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	for name, requests := range map[string][]driver.AcquireRequest{
		"some": {p.newShared("some", 1, 4), p.newShared("some", 2, 4)},
		"all":  {p.newShared("all", 4, 4)},
	} {
		for i, r := range requests {
			d := p.describe(r, driver.KindSemaphore, fmt.Sprintf("job-%d", i))
			p.mustAcquire(d.AcquireRequest)
			p.wantHolderOf(d)
		}
		var waiters []described
		for i, weight := range []int{3, 4} {
			d := p.describe(p.newShared(name, weight, 4), driver.KindSemaphore, "")
			p.mustQueue(d.AcquireRequest, i+1)
			waiters = append(waiters, d)
		}
		p.wantWaiters(name, waiters...)
	}
}

func kindOfMulti(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	held := p.describe(p.newMulti(x, y), driver.KindMulti, "batch")
	waits := p.describe(p.newMulti(y, x), driver.KindMulti, "batch")
	p.mustAcquire(held.AcquireRequest)
	p.mustQueue(waits.AcquireRequest, 1)
	for _, name := range []string{x, y} {
		held.Name = name
		p.wantHolderOf(held)
		p.wantWaiters(name, waits)
	}
}

func kindOfUpgrade(t *testing.T, s *driver.Full) {
	skipWithoutReaders(t, s)
	p := newSilentClient(t, s)
	for name, d := range map[string]described{
		"reader": p.describe(p.newReader("reader"), driver.KindReader, "l"),
		"writer": p.describe(p.newWriter("writer"), driver.KindWriter, "l"),
	} {
		p.mustAcquire(d.AcquireRequest)
		for _, want := range []driver.Kind{driver.KindWriter, driver.KindReader, driver.KindWriter} {
			d.kind, d.Weight = want, 1
			if want == driver.KindWriter {
				d.Weight = driver.Unlimited
			}
			if a := p.mustResize(d.AcquireRequest, d.Weight, d.AcquireRequest.Limit); !a.Held {
				t.Fatalf("%q: resize to a %s: %+v", name, want, a)
			}
			p.wantHolderOf(d)
		}
	}
}

// steady returns a state without the differences between two readings.
func steady(s driver.State) driver.State {
	s.Holders, s.Waiters, s.Nodes = slices.Clone(s.Holders), slices.Clone(s.Waiters), nil
	for i := range s.Holders {
		s.Holders[i].Remaining = 0
	}
	for i := range s.Waiters {
		s.Waiters[i].Waited = 0
	}
	return s
}

// equal compares states without their fence high-water marks, which InspectAll may omit.
func equal(a, b driver.State) bool {
	a, b = steady(a), steady(b)
	return a.Name == b.Name && slices.Equal(a.Holders, b.Holders) && a.Holding == b.Holding &&
		slices.Equal(a.Waiters, b.Waiters) && a.Waiting == b.Waiting && (a.Foreign == nil) == (b.Foreign == nil)
}

func (p *testClient) states(names []string) []driver.State {
	p.t.Helper()
	needs(p.t, p.s, "Lister")
	states, err := p.s.InspectAll(operationContext(p.t), names)
	if err != nil || len(states) != len(names) {
		p.t.Fatalf("inspect all %d names: %d states, %v", len(names), len(states), err)
	}
	return states
}

// wantSameStates compares InspectAll with Inspect, and returns the states. In a store with several
// nodes, a node may lag behind during either call.
func (p *testClient) wantSameStates(names []string) []driver.State {
	p.t.Helper()
	for end := time.Now().Add(operationTimeout); ; time.Sleep(10 * time.Millisecond) {
		states := p.states(names)
		differs := slices.IndexFunc(states, func(s driver.State) bool { return !equal(s, p.state(s.Name)) })
		if differs < 0 {
			for i, s := range states {
				if s.Name != names[i] {
					p.t.Fatalf("state %d is of %q, want %q", i, s.Name, names[i])
				}
			}
			return states
		}
		if time.Now().After(end) {
			name := names[differs]
			p.t.Fatalf("%q: InspectAll returns %+v, and Inspect %+v", name, states[differs], p.state(name))
		}
	}
}

func inspectAll(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	if states := p.states(nil); len(states) != 0 {
		t.Errorf("of no names: %+v", states)
	}
	held := p.describe(p.newRequest("held"), driver.KindMutex, "backup")
	p.mustAcquire(held.AcquireRequest)
	p.mustQueue(p.newRequest("held"), 1)
	p.mustQueue(p.newWriter("held"), 2)
	p.mustAcquire(p.newWriter("other"))
	names := []string{"other", "free", "held", "held", "also free", "other"}
	states := p.wantSameStates(names)
	for i, want := range []struct{ holding, waiting int }{{1, 0}, {0, 0}, {1, 2}, {1, 2}, {0, 0}, {1, 0}} {
		if states[i].Holding != want.holding || states[i].Waiting != want.waiting {
			t.Errorf("%q: %+v, want %d holders and %d waiters", names[i], states[i], want.holding, want.waiting)
		}
	}
	h := states[2].Holders[0]
	if h.Token != held.Token || h.Kind != held.kind || h.Label != held.label || h.Remaining <= 0 || h.Remaining > held.TTL {
		t.Errorf("holder %+v, want %s", h, held.Token)
	}
}

func inspectAllShared(t *testing.T, s *driver.Full) {
	skipWithoutReaders(t, s)
	p := newClient(t, s)
	for range 3 {
		p.mustAcquire(p.newReader("shared"))
	}
	p.mustQueue(p.newWriter("shared"), 1)
	p.mustAcquire(p.newReader("one"))
	states := p.wantSameStates([]string{"shared", "free", "one"})
	if states[0].Holding != 3 || states[0].Waiting != 1 || states[1].Holding != 0 || states[2].Holding != 1 || states[2].Waiting != 0 {
		t.Errorf("%+v, want 3 readers and a waiter, nobody, one reader", states)
	}
}

func inspectMany(t *testing.T, s *driver.Full) {
	skipWithoutReaders(t, s)
	p := newClient(t, s)
	const number, most = 120, 100
	var waiters []driver.AcquireRequest
	var last driver.AcquireRequest
	for range number {
		last = p.newReader("n")
		p.mustAcquire(last)
	}
	for i, begin := 0, time.Now(); i < number; i++ {
		if since := time.Since(begin); since > driver.WaiterTTL*3/4 {
			t.Skipf("%d requests took %v: the first waiters would be dead before the last one waits", i, since)
		}
		waiters = append(waiters, p.newWriter("n"))
		p.mustQueue(waiters[i], i+1)
	}
	state := p.states([]string{"free", "n"})[1]
	// The nodes of a quorum may not list the same holders, so it can show a few less.
	wrong := func(shown int) bool { return shown > most || shown < most/2 }
	if state.Holding != number || wrong(len(state.Holders)) || state.Waiting != number || wrong(len(state.Waiters)) {
		t.Fatalf("%d holders, of which %d are shown, and %d waiters, of which %d are shown; want %d, and %d shown at most",
			state.Holding, len(state.Holders), state.Waiting, len(state.Waiters), number, most)
	}
	for i, w := range state.Waiters {
		if w.Token != waiters[i].Token {
			t.Fatalf("waiter %d is %s, want %s", i, w.Token, waiters[i].Token)
		}
	}
	for i, h := range state.Holders[1:] {
		if h.Remaining < state.Holders[i].Remaining {
			t.Fatalf("holder %d expires before the holder ahead of it: %+v", i+1, state.Holders)
		}
	}
	p.mustRevokeToken(last, "it expires last, so it is not shown")
	wantErr(t, p.extend(last, time.Minute), dibs.ErrLost)
}

func inspectAllOfMany(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	const number, each = 1000, 25 // every 25th name is held
	var names []string
	held := make(map[string]string)
	for i := range number {
		name := fmt.Sprintf("n%d", (i*7)%number) // not in order
		names = append(names, name)
		if i%each == 0 {
			r := p.newRequest(name)
			p.mustAcquire(r)
			held[name] = r.Token
		}
	}
	for i, state := range p.states(names) {
		token := ""
		if len(state.Holders) > 0 {
			token = state.Holders[0].Token
		}
		if state.Name != names[i] || token != held[names[i]] {
			t.Fatalf("state %d: %+v, want %q, held by %q", i, state, names[i], held[names[i]])
		}
	}
}

func inspectAllOfAnyName(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	names := oddNames()
	for _, name := range names {
		p.mustAcquire(p.newRequest(name))
	}
	for _, state := range p.wantSameStates(names) {
		if state.Holding != 1 {
			t.Errorf("%q: %+v, want one holder", state.Name, state)
		}
	}
}

func inspectAllInvalid(t *testing.T, s *driver.Full) {
	needs(t, s, "Lister")
	p := newSilentClient(t, s)
	for _, bad := range []string{"", string(make([]byte, driver.MaxName+1)), "not\xffutf8"} {
		_, err := s.InspectAll(operationContext(t), []string{"n", bad, "o"})
		wantErr(t, err, dibs.ErrInvalid)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	begin := time.Now()
	_, err := s.InspectAll(ctx, []string{"n", "o"})
	wantErr(t, err, dibs.ErrUnavailable)
	if took := time.Since(begin); took > 5*time.Second { // it waited until a deadline
		t.Errorf("took %v", took)
	}
	p.wantHolder("n", "")
}
