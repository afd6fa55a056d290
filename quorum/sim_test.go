package quorum

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/memstore"
)

// The simulation: clients of a quorum of stores in memory, in virtual time. Messages are
// late, overtake each other and are lost; nodes stop, and come back with or without their
// memory; links are cut; processes stand still; clocks drift. A seed decides on all that,
// so that a run can be had again, but for what is due in the same nanosecond: go test -run TestSimulation -seed 42 -v.

var seedFlag = flag.Uint64("seed", 0, "run the simulation with this seed alone, and tell what happens")

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
	log    []string
}

func (w *world) rng(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, stream)) }

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf("%10v  ", time.Since(w.begin))+fmt.Sprintf(format, args...))
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

	seed   uint64
	mu     sync.Mutex
	times  map[string]uint64 // that such a message was sent
	cut    bool
	late   time.Duration // beside the usual
	frozen time.Time     // the process stands still until then
	last   time.Time     // when the last push arrives: they keep their order
}

var errCut = errors.New("connection refused")

// trip is how long a message travels; it may be lost. That depends on what it is, and not
// on which of several was sent first in one moment, which nothing decides.
func (l *link) trip(what, name, token string) (d time.Duration, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what += " " + name + token[strings.LastIndexByte(token, ':')+1:] // without what is random in it
	l.times[what]++
	h := fnv.New64a()
	h.Write([]byte(what))
	rng := rand.New(rand.NewPCG(l.seed+l.times[what]<<32, h.Sum64()))
	const one = time.Millisecond
	d = one/5 + time.Duration(rng.ExpFloat64()*float64(one)) + l.late
	if rng.IntN(50) == 0 {
		d += time.Duration(rng.IntN(1000)) * one
	}
	d += max(time.Until(l.frozen), 0)
	return d, l.cut || rng.IntN(200) == 0
}

// ask has a request travel to the server, be served there, and the answer come back.
// Whoever asked may have left meanwhile.
func ask[T any](ctx context.Context, l *link, what, name, token string, serve func(context.Context) (T, error)) (T, error) {
	type reply struct {
		value T
		err   error
	}
	done := make(chan reply, 1)
	there, lost := l.trip(what, name, token)
	back, lostBack := l.trip("back "+what, name, token)
	go func() {
		time.Sleep(there)
		if lost {
			return
		}
		var r reply
		if l.server.isDown() {
			r.err = &dibs.UnavailableError{Op: "simulated", Cause: errCut}
		} else {
			r.value, r.err = serve(context.Background())
		}
		time.Sleep(back)
		if !lostBack {
			done <- r
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, &dibs.UnavailableError{Op: "simulated", Cause: context.Cause(ctx)}
	}
}

func (l *link) Acquire(ctx context.Context, c dibs.Claim) (dibs.Answer, error) {
	return ask(ctx, l, "acquire", c.Name, c.Token, func(ctx context.Context) (dibs.Answer, error) { return l.server.Store.Acquire(ctx, c) })
}

func (l *link) Abandon(ctx context.Context, c dibs.Claim) error {
	_, err := ask(ctx, l, "abandon", c.Name, c.Token, func(ctx context.Context) (bool, error) { return true, l.server.Store.Abandon(ctx, c) })
	return err
}

func (l *link) Release(ctx context.Context, r dibs.Release) (bool, error) {
	return ask(ctx, l, "release", r.Name, r.Token, func(ctx context.Context) (bool, error) { return l.server.Store.Release(ctx, r) })
}

func (l *link) Extend(ctx context.Context, holds []dibs.Hold) []error {
	errs, err := ask(ctx, l, "extend", holds[0].Name, holds[0].Token, func(ctx context.Context) ([]error, error) { return l.server.Store.Extend(ctx, holds), nil })
	if err != nil {
		errs = make([]error, len(holds))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

func (l *link) Watch(ctx context.Context, client string, on func(dibs.Event)) error {
	return l.server.Store.Watch(ctx, client, func(e dibs.Event) {
		d, lost := l.trip("event", "", e.Token)
		if lost {
			return
		}
		l.mu.Lock()
		at := time.Now().Add(d)
		if !at.After(l.last) {
			at = l.last.Add(1)
		}
		l.last = at
		l.mu.Unlock()
		time.AfterFunc(time.Until(at), func() {
			if ctx.Err() == nil {
				on(e)
			}
		})
	})
}

// simulate lets clients work in a world for a while, and returns it.
func simulate(t *testing.T, seed uint64, sky weather) *world {
	w := &world{weather: sky, t: t, seed: seed, live: make(map[string][]*dibs.Lease), fences: make(map[string]uint64)}
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
	ctx, end := context.WithTimeout(context.Background(), span)
	defer end()
	var locks []*dibs.Client
	var group sync.WaitGroup
	for i := range clients {
		nodes := make([]dibs.Store, w.nodes)
		for j, s := range w.servers {
			l := &link{Store: s, server: s, seed: w.seed<<8 + uint64(16*i+j), times: make(map[string]uint64)}
			nodes[j], w.links = l, append(w.links, l)
		}
		store := w.config.New(nodes...)
		if w.change != nil {
			w.change(store)
		}
		c := dibs.New(store, dibs.TTL(simTTL))
		locks = append(locks, c)
		// One at a time: which of two that ask in one moment is first, nothing decides.
		group.Go(func() { w.work(ctx, c, w.rng(uint64(100+i)), fmt.Sprintf("client %d", i)) })
	}
	group.Go(func() { w.storm(ctx, chance) })
	group.Wait()
	for _, l := range w.links {
		l.mu.Lock()
		l.cut, l.late, l.frozen = false, 0, time.Time{}
		l.mu.Unlock()
	}
	for _, s := range w.servers {
		s.turn(false)
	}
	w.calm(locks)
	for _, c := range locks {
		_ = c.Close() // what a cut left unknown is told here
	}
	time.Sleep(time.Minute) // what is late arrives
}

// calm checks that nothing is stuck once all is well again.
func (w *world) calm(locks []*dibs.Client) {
	const soon = 4*simTTL + 2*dibs.ClaimTTL
	for i, c := range locks {
		for _, name := range simNames {
			start := time.Now()
			l, err := c.Mutex(name).Lock(context.Background(), dibs.Wait(soon))
			for err != nil && time.Since(start) < soon { // messages may still be lost
				l, err = c.Mutex(name).Lock(context.Background(), dibs.Wait(soon))
			}
			if err != nil {
				w.mu.Lock()
				w.found = append(w.found, fmt.Sprintf("client %d cannot lock %q after the storm, within %v: %v", i, name, time.Since(start), err))
				w.mu.Unlock()
				continue
			}
			w.took(name, l, fmt.Sprintf("client %d, after the storm", i))
			_ = l.Unlock()
		}
	}
}

var simNames = []string{"a", "b"}

// work takes names and gives them back.
func (w *world) work(ctx context.Context, c *dibs.Client, chance *rand.Rand, who string) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(chance.IntN(50_000_000)))
		name := simNames[chance.IntN(len(simNames))]
		wait := dibs.Wait(0)
		if chance.IntN(3) > 0 { // an odd time, in which nothing else is due
			wait = dibs.Wait(time.Duration(chance.Int64N(int64(3 * time.Second))))
		}
		hold := time.Duration(chance.IntN(100_000_000))
		if chance.IntN(8) == 0 {
			hold = time.Duration(chance.Int64N(int64(3 * simTTL)))
		}
		l, err := c.Mutex(name).Lock(ctx, wait)
		if err != nil {
			w.note("%s: %q: %v", who, name, err)
			continue
		}
		w.took(name, l, who)
		select {
		case <-time.After(hold):
		case <-l.Context().Done():
		}
		err = l.Unlock()
		w.note("%s: unlocked %q: %v", who, name, err)
	}
}

// took notes a lease, and whether it should have been granted.
func (w *world) took(name string, l *dibs.Lease, who string) {
	w.note("%s: has %q, fence %d", who, name, l.Fence())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grants++
	if l.Err() != nil {
		return // it was over before it was told
	}
	var live []*dibs.Lease
	for _, other := range w.live[name] {
		if other.Err() == nil {
			w.found = append(w.found, fmt.Sprintf("%v: %q is held by %s and %s", time.Since(w.begin), name, other.Token(), l.Token()))
			live = append(live, other)
		}
	}
	w.live[name] = append(live, l)
	if l.Fence() <= w.fences[name] {
		w.found = append(w.found, fmt.Sprintf("%v: fence %d of %q after %d", time.Since(w.begin), l.Fence(), name, w.fences[name]))
	}
	w.fences[name] = max(w.fences[name], l.Fence())
}

// storm is what goes wrong.
func (w *world) storm(ctx context.Context, chance *rand.Rand) {
	sleep := func(most time.Duration) {
		select {
		case <-time.After(time.Duration(chance.Int64N(int64(most)))):
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
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
			l := w.links[chance.IntN(len(w.links))]
			l.set(func() { l.cut = true })
			sleep(2 * simTTL)
			l.set(func() { l.cut = false })
		case 3:
			client := chance.IntN(len(w.links)/len(w.servers)) * len(w.servers)
			stop := time.Duration(chance.Int64N(int64(2 * simTTL)))
			w.note("client %d stands still for %v", client/len(w.servers), stop)
			for _, l := range w.links[client : client+len(w.servers)] {
				l.set(func() { l.frozen = time.Now().Add(stop) })
			}
		case 4:
			l := w.links[chance.IntN(len(w.links))]
			l.set(func() { l.late = time.Duration(chance.IntN(300)) * time.Millisecond })
		}
	}
}

func (l *link) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// TestSimulation: what is assumed of clocks and delays holds, and so nobody ever holds
// beside another, fences grow, and nothing is stuck afterwards.
func TestSimulation(t *testing.T) {
	seeds := uint64(2000)
	if redistest.Long() {
		seeds = 100_000
	}
	if *seedFlag != 0 {
		w := simulate(t, *seedFlag, fair(*seedFlag))
		for _, line := range w.log {
			t.Log(line)
		}
		w.judge(t)
		return
	}
	const lots = 4
	var grants atomic.Int64
	start := time.Now()
	t.Cleanup(func() {
		t.Logf("FIGURE %d seeds, %d grants, in %v", seeds, grants.Load(), time.Since(start).Round(time.Second))
	})
	for lot := range uint64(lots) {
		t.Run(fmt.Sprint(lot), func(t *testing.T) {
			t.Parallel()
			for seed := lot + 1; seed <= seeds && !t.Failed(); seed += lots {
				w := simulate(t, seed, fair(seed))
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
				if w := simulate(t, seed, sky); len(w.found) > 0 {
					t.Logf("FIGURE seed %d: %s", seed, w.found[0])
					return
				}
			}
			t.Error("2000 seeds, and nothing was found")
		})
	}
}

// TestSimulationRepeats: a seed that fails can be had again, as a rule at the first try.
func TestSimulationRepeats(t *testing.T) {
	different := 0
	for seed := uint64(1); seed <= 100; seed++ {
		a, b := simulate(t, seed, fair(seed)), simulate(t, seed, fair(seed))
		if a.history() != b.history() {
			different++
		}
	}
	t.Logf("FIGURE %d of 100 seeds went differently the second time", different)
	if different > 60 { // which of two that are due in one nanosecond is first, nothing decides
		t.Error("too many to find a fault by its seed")
	}
}

// history is who held what, and what befell the nodes.
func (w *world) history() string {
	var b strings.Builder
	for _, line := range w.log {
		if strings.Contains(line, ": has ") || strings.Contains(line, "  node ") {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}
