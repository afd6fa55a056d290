package quorum

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// The simulation: clients of a quorum of stores in memory, in virtual time. Messages are
// late, overtake each other and are lost; nodes stop, and come back with or without their
// memory; links are cut; processes stand still; clocks drift. A seed decides on all that,
// so that a run can be had again: go test -run TestSimulation -seed 42 -v.
//
// Nothing decides which of two goroutines is first that can run in the same moment of
// virtual time. So no two messages arrive in one nanosecond (see link.own), what a message
// suffers depends on what it is, and not on when it was sent, and tokens are not random,
// because those with the same ticket are served in their order.

var (
	seedFlag  = flag.Uint64("seed", 0, "run the simulation with this seed alone, and tell what happens")
	twiceFlag = flag.Uint64("twice", 50, "run so many seeds of the simulation twice")
	seedsFlag = flag.String("seeds", "1-1000", "run the simulation with these seeds")
)

// A weather is what the simulated world is like.
type weather struct {
	nodes   int
	drift   float64      // of a node's clock, at most, to either side
	amnesia bool         // nodes forget everything when they stop
	change  func(*Store) // breaks the quorum, to see that it is noticed
	config  Config
}

const simTTL = 2 * time.Second

func fair(seed uint64) weather {
	return weather{nodes: []int{3, 5, 4, 5, 1}[seed%5], drift: 0.01, amnesia: true, config: Config{Longest: simTTL}}
}

// A world is one run.
type world struct {
	weather
	t       *testing.T
	seed    uint64
	begin   time.Time
	servers []*server
	links   []*link

	mu     sync.Mutex
	live   map[string][]*dibs.Lease // by name
	fences map[string]uint64
	grants int
	found  []string // what must not be
	loud   bool     // keeps a log
	log    []string
}

func (w *world) rng(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, stream)) }

func (w *world) note(format string, args ...any) {
	if !w.loud {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	line := fmt.Sprintf("%13.9f  ", time.Since(w.begin).Seconds()) + fmt.Sprintf(format, args...)
	w.log = append(w.log, nodeName.ReplaceAllString(line, "N"))
}

var nodeName = regexp.MustCompile("[A-Z2-7]{26}") // is random

// find notes what must not be. The caller holds w.mu.
func (w *world) find(format string, args ...any) {
	w.found = append(w.found, fmt.Sprintf("%v: ", time.Since(w.begin))+fmt.Sprintf(format, args...))
}

// A server is a node, which may be down.
type server struct {
	dibs.Store
	memory *memstore.Store
	mu     sync.Mutex
	down   bool
}

func (s *server) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

func (s *server) turn(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// A link is what one client sees of one node.
type link struct {
	dibs.Store // the server
	server     *server
	w          *world
	number     int

	mu     sync.Mutex
	times  map[string]uint64      // that such a message was sent
	taken  map[time.Duration]bool // then something arrives
	cut    bool
	late   time.Duration // beside the usual
	frozen time.Time     // the process stands still until then
}

var errCut = errors.New("connection refused")

// trip is how long a message travels; it may be lost.
func (l *link) trip(what, name, token string) (d time.Duration, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what += " " + name + token
	l.times[what]++
	h := fnv.New64a()
	h.Write([]byte(what))
	rng := rand.New(rand.NewPCG(l.w.seed<<8+uint64(l.number)+l.times[what]<<32, h.Sum64()))
	const one = time.Millisecond
	d = one/5 + time.Duration(rng.ExpFloat64()*float64(one)) + l.late
	if rng.IntN(50) == 0 {
		d += time.Duration(rng.IntN(1000)) * one
	}
	d += max(time.Until(l.frozen), 0)
	return d, l.cut || rng.IntN(200) == 0
}

// own is the first time after d in which nothing else arrives. What one link sends in one
// moment is of claims that end in different digits: chance would decide which of two that
// want the same time has to take the next.
func (l *link) own(d time.Duration, token string) time.Duration {
	const links, digits = 31, 10 // more links than there are; a prime, so that pauses of whole milliseconds do not lead from one's time to another's
	const round = links * digits
	digit := time.Duration(token[len(token)-1] - '0')
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.w.begin)
	at := now + d
	at += round - at%round + links*digit + time.Duration(l.number)
	for l.taken[at] {
		at += round
	}
	l.taken[at] = true
	return at - now
}

// ask has a request travel to the server, be served there, and the answer come back.
// Whoever asked may have left meanwhile: what is on its way arrives all the same.
func ask[T any](ctx context.Context, l *link, what, name, token string, serve func() (T, error)) (T, error) {
	arrive := func(d time.Duration) (value T, err error) {
		time.Sleep(d)
		if l.server.isDown() {
			err = &dibs.UnavailableError{Op: "simulated", Cause: errCut}
		} else {
			value, err = serve()
		}
		l.w.note("link %d: %s %q %s: %+v, %v", l.number, what, name, token, value, err)
		return value, err
	}
	there, lost := l.trip(what, name, token)
	back, lostBack := l.trip("back "+what, name, token)
	deadline, _ := ctx.Deadline()
	impatience := there % (50 * time.Microsecond) // or who was asked in one moment is left in the order of the links
	leave := func() (none T, err error) {
		time.Sleep(l.own(max(time.Until(deadline), 0)+impatience, token))
		l.w.note("link %d: %s %q %s: no answer", l.number, what, name, token)
		return none, &dibs.UnavailableError{Op: "simulated", Cause: context.DeadlineExceeded}
	}
	there = l.own(there, token)
	switch {
	case lost:
		return leave()
	case time.Until(deadline) < there:
		go arrive(there)
		return leave()
	}
	value, err := arrive(there)
	back = l.own(back, token)
	if lostBack || time.Until(deadline) < back {
		return leave()
	}
	time.Sleep(back)
	return value, err
}

func (l *link) Acquire(ctx context.Context, c dibs.Claim) (dibs.Answer, error) {
	return ask(ctx, l, "acquire", c.Name, c.Token, func() (dibs.Answer, error) { return l.server.Store.Acquire(context.Background(), c) })
}

func (l *link) Abandon(ctx context.Context, c dibs.Claim) error {
	_, err := ask(ctx, l, "abandon", c.Name, c.Token, func() (bool, error) { return true, l.server.Store.Abandon(context.Background(), c) })
	return err
}

func (l *link) Release(ctx context.Context, r dibs.Release) (bool, error) {
	return ask(ctx, l, "release", r.Name, r.Token, func() (bool, error) { return l.server.Store.Release(context.Background(), r) })
}

func (l *link) Extend(ctx context.Context, holds []dibs.Hold) []error {
	errs, err := ask(ctx, l, "extend", holds[0].Name, holds[0].Token, func() ([]error, error) { return l.server.Store.Extend(context.Background(), holds), nil })
	if err != nil {
		errs = make([]error, len(holds))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

func (l *link) Watch(ctx context.Context, client string, on func(dibs.Event)) error {
	var mu sync.Mutex
	var last time.Time // when the last push arrives: they keep their order
	return l.server.Store.Watch(ctx, client, func(e dibs.Event) {
		d, lost := l.trip("event", "", e.Token)
		if lost {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		d = l.own(max(d, time.Until(last)), cmp.Or(e.Token, "0"))
		last = time.Now().Add(d)
		time.AfterFunc(d, func() {
			if ctx.Err() == nil {
				on(e)
			}
		})
	})
}

// simulate lets clients work in a world for a while, and returns it.
func simulate(t *testing.T, seed uint64, sky weather, loud bool) *world {
	w := &world{weather: sky, t: t, seed: seed, loud: loud, live: make(map[string][]*dibs.Lease), fences: make(map[string]uint64)}
	synctest.Test(t, func(*testing.T) { w.run() })
	return w
}

func (w *world) run() {
	const clients, span = 5, 12 * time.Second
	w.begin = time.Now()
	chance := w.rng(1)
	for range w.nodes {
		rate := 1 + w.drift*(2*chance.Float64()-1)
		clock := func() time.Time { return w.begin.Add(time.Duration(rate * float64(time.Since(w.begin)))) }
		memory := memstore.New(memstore.Clock(clock))
		w.servers = append(w.servers, &server{Store: memory, memory: memory})
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	time.AfterFunc(span, end)
	var people []*person
	var group sync.WaitGroup
	for i := range clients {
		nodes := make([]dibs.Store, w.nodes)
		for j, s := range w.servers {
			l := &link{Store: s, server: s, w: w, number: i*w.nodes + j, times: make(map[string]uint64), taken: make(map[time.Duration]bool)}
			nodes[j], w.links = l, append(w.links, l)
		}
		store, err := w.config.New(nodes...)
		if err != nil {
			panic(err)
		}
		if w.change != nil {
			w.change(store)
		}
		p := &person{w: w, locks: dibs.New(store, dibs.TTL(simTTL)), name: fmt.Sprint("client-", i)}
		people = append(people, p)
		group.Go(func() { p.work(ctx, w.rng(uint64(100+i))) })
	}
	group.Go(func() { w.storm(chance, span) })
	group.Wait()
	time.Sleep(time.Nanosecond) // what somebody does with his last breath meets the storm still
	for _, l := range w.links {
		l.mu.Lock()
		l.cut, l.late, l.frozen = false, 0, time.Time{}
		l.mu.Unlock()
	}
	for _, s := range w.servers {
		s.turn(false)
	}
	for _, p := range people {
		p.calm()
	}
	for _, p := range people {
		_ = p.locks.Close() // what a cut left unknown is told here
	}
	time.Sleep(time.Minute) // what is late arrives
}

// A person is who uses a client.
type person struct {
	w     *world
	locks *dibs.Client
	name  string
	turns int
}

// lock takes a name.
func (p *person) lock(ctx context.Context, name string, wait time.Duration) (*dibs.Lease, error) {
	time.Sleep(time.Nanosecond) // what he has left to the background has begun
	p.turns++
	token := fmt.Sprint(p.name, ":", p.turns)
	l, err := p.locks.Mutex(name).Lock(ctx, dibs.Wait(wait), dibs.Token(token))
	if err != nil {
		p.w.note("%s: %q: %v", token, name, err)
		return nil, err
	}
	p.w.took(name, l)
	return l, nil
}

// calm checks that nothing is stuck once all is well again.
func (p *person) calm() {
	const soon = 4*simTTL + 2*dibs.ClaimTTL
	for _, name := range simNames {
		start := time.Now()
		l, err := p.lock(context.Background(), name, soon)
		for err != nil && time.Since(start) < soon { // messages may still be lost
			l, err = p.lock(context.Background(), name, soon)
		}
		if err != nil {
			p.w.mu.Lock()
			p.w.find("%s cannot lock %q after the storm, within %v: %v", p.name, name, time.Since(start), err)
			p.w.mu.Unlock()
			continue
		}
		_ = l.Unlock()
	}
}

var simNames = []string{"a", "b"}

// work takes names and gives them back.
func (p *person) work(ctx context.Context, chance *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(chance.IntN(50_000_000)))
		name := simNames[chance.IntN(len(simNames))]
		wait := time.Duration(0)
		if chance.IntN(3) > 0 { // an odd time, in which nothing else is due
			wait = time.Duration(chance.Int64N(int64(3 * time.Second)))
		}
		hold := time.Duration(chance.IntN(100_000_000))
		if chance.IntN(8) == 0 {
			hold = time.Duration(chance.Int64N(int64(3 * simTTL)))
		}
		l, err := p.lock(ctx, name, wait)
		if err != nil {
			continue
		}
		select {
		case <-time.After(hold):
		case <-l.Context().Done():
		}
		err = l.Unlock()
		p.w.note("%s: unlocked %q: %v", l.Token(), name, err)
	}
}

// took notes a lease, and whether it should have been granted.
func (w *world) took(name string, l *dibs.Lease) {
	w.note("%s: has %q, fence %d", l.Token(), name, l.Fence())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grants++
	if l.Err() != nil {
		return // it was over before it was told
	}
	var live []*dibs.Lease
	for _, other := range w.live[name] {
		if other.Err() == nil {
			w.find("%q is held by %s and %s", name, other.Token(), l.Token())
			live = append(live, other)
		}
	}
	w.live[name] = append(live, l)
	if l.Fence() <= w.fences[name] {
		w.find("fence %d of %q after %d", l.Fence(), name, w.fences[name])
	}
	w.fences[name] = max(w.fences[name], l.Fence())
}

// storm is what goes wrong. It ends a moment later than the work, or chance would decide
// whether the last messages still meet it.
func (w *world) storm(chance *rand.Rand, span time.Duration) {
	left := func() time.Duration { return span + 1 - time.Since(w.begin) }
	sleep := func(most time.Duration) { time.Sleep(min(time.Duration(chance.Int64N(int64(most))), left())) }
	for left() > 0 {
		sleep(800 * time.Millisecond)
		at := chance.IntN(len(w.servers))
		s := w.servers[at]
		switch chance.IntN(5) {
		case 0:
			w.note("node %d stops", at)
			s.turn(true)
			sleep(simTTL)
			s.turn(false)
			w.note("node %d is back", at)
		case 1:
			if w.amnesia {
				w.note("node %d forgets everything", at)
				s.memory.Restart()
			}
		case 2:
			i := chance.IntN(len(w.links))
			w.note("link %d is cut", i)
			w.links[i].set(func(l *link) { l.cut = true })
			sleep(2 * simTTL)
			w.links[i].set(func(l *link) { l.cut = false })
			w.note("link %d is whole", i)
		case 3:
			client := chance.IntN(len(w.links) / len(w.servers))
			stop := time.Duration(chance.Int64N(int64(2 * simTTL)))
			w.note("client-%d stands still for %v", client, stop)
			for _, l := range w.links[client*len(w.servers):][:len(w.servers)] {
				l.set(func(l *link) { l.frozen = time.Now().Add(stop) })
			}
		case 4:
			i := chance.IntN(len(w.links))
			late := time.Duration(chance.IntN(300)) * time.Millisecond
			w.note("link %d is slower by %v", i, late)
			w.links[i].set(func(l *link) { l.late = late })
		}
	}
}

func (l *link) set(change func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// TestSimulation: what is assumed of clocks and delays holds, and so nobody ever holds
// beside another, fences grow, and nothing is stuck afterwards.
func TestSimulation(t *testing.T) {
	if *seedFlag != 0 {
		w := simulate(t, *seedFlag, fair(*seedFlag), true)
		for _, line := range w.log {
			t.Log(line)
		}
		w.judge(t)
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
				w := simulate(t, seed, fair(seed), false)
				grants.Add(int64(w.grants))
				w.judge(t)
			}
		})
	}
}

func (w *world) judge(t *testing.T) {
	t.Helper()
	for _, found := range w.found[:min(len(w.found), 3)] {
		t.Errorf("seed %d, %d nodes: %s", w.seed, w.nodes, found)
	}
}

// TestSimulationSees: a quorum that is broken on purpose is caught.
func TestSimulationSees(t *testing.T) {
	for name, broken := range map[string]func(*weather){
		"no guard":                              func(w *weather) { w.config.Trusting = true },
		"one vote less than most":               func(w *weather) { w.change = func(s *Store) { s.need = max(s.need-1, 1) } },
		"clocks drift more than is allowed for": func(w *weather) { w.drift = 0.05 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 2000; seed++ {
				sky := fair(seed)
				broken(&sky)
				if w := simulate(t, seed, sky, false); len(w.found) > 0 {
					t.Logf("FIGURE seed %d: %s", seed, w.found[0])
					return
				}
			}
			t.Error("2000 seeds, and nothing was found")
		})
	}
}

// TestSimulationRepeats: a seed that fails can be had again, each message of it.
func TestSimulationRepeats(t *testing.T) {
	for seed := uint64(1); seed <= *twiceFlag; seed++ {
		a, b := simulate(t, seed, fair(seed), true).history(), simulate(t, seed, fair(seed), true).history()
		if !slices.Equal(a, b) {
			same := 0
			for same < min(len(a), len(b)) && a[same] == b[same] {
				same++
			}
			t.Errorf("seed %d went differently the second time: %q, and then %q", seed, a[same:min(same+1, len(a))], b[same:min(same+1, len(b))])
		}
	}
}

// history is the log, in an order that owes nothing to chance: what happens in one moment
// is written down by several goroutines.
func (w *world) history() []string { return slices.Sorted(slices.Values(w.log)) }
