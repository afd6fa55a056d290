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
// late, overtake each other and are lost; connections are reset, and what was sent arrives
// all the same; requests are refused; nodes stop, and come back with or without their
// memory; links are cut; processes stand still; clocks drift. Clients lock, read, write,
// upgrade, use a token again, and hand a lease to another process. A seed decides on all
// that, so that a run can be had again: go test -run TestSimulation -seed 42 -v.
//
// Nothing decides which of two goroutines is first that can run in the same moment of
// virtual time. So no two messages arrive in one nanosecond (see link.own), what a message
// suffers depends on what it is, and not on when it was sent, and tokens are not random,
// because those with the same ticket are served in their order.

var (
	seedFlag  = flag.Uint64("seed", 0, "run the simulation with this seed alone, and tell what happens")
	twiceFlag = flag.Uint64("twice", 50, "run so many seeds of the simulation twice")
	seedsFlag = flag.String("seeds", "1-400", "run the simulation with these seeds")
)

// A weather is what the simulated world is like.
type weather struct {
	nodes   int
	drift   float64 // of a node's clock, at most, to either side
	amnesia bool    // nodes forget everything when they stop
	ttl     time.Duration
	lapse   bool         // leases are held until their TTL ends
	change  func(*Store) // breaks the quorum, to see that it is noticed
	config  Config
}

const simTTL = 2 * time.Second

// fair is the weather that a quorum is made for. In every other world leases are so long
// that none ends by itself: there what is left behind is seen.
func fair(seed uint64) weather {
	w := weather{nodes: []int{3, 5, 4, 5, 1}[seed%5], drift: 0.01}
	if seed%2 == 0 {
		w.ttl = 30 * time.Second
	} else {
		w.ttl, w.amnesia = simTTL, true
	}
	w.config.Longest = w.ttl
	return w
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
	live   map[string][]*grant // by name
	fences map[string]uint64   // the largest,
	alone  map[string]uint64   // and of those who held alone
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
	failed map[string]bool        // the last one was reset
	taken  map[time.Duration]bool // then something arrives
	cut    bool
	late   time.Duration // beside the usual
	frozen time.Time     // the process stands still until then
	resets time.Time     // each connection is reset until then
}

var (
	errCut   = errors.New("connection refused")
	errReset = errors.New("connection reset")
	errFull  = errors.New("out of memory")
)

// A trip is what a message suffers.
type trip struct {
	takes   time.Duration
	lost    bool
	reset   time.Duration // if not zero, its sender is told then that the connection was reset
	refused bool
}

func (l *link) trip(what, name, token string) (t trip) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what += " " + name + token
	l.times[what]++
	h := fnv.New64a()
	h.Write([]byte(what))
	rng := rand.New(rand.NewPCG(l.w.seed<<8+uint64(l.number)+l.times[what]<<32, h.Sum64()))
	const one = time.Millisecond
	t.takes = one/5 + time.Duration(rng.ExpFloat64()*float64(one)) + l.late
	if rng.IntN(50) == 0 {
		t.takes += time.Duration(rng.IntN(1000)) * one
	}
	t.takes += max(time.Until(l.frozen), 0)
	t.lost = l.cut || rng.IntN(200) == 0
	again := l.failed[what]
	if t.refused = rng.IntN(100) == 0 || again && rng.IntN(3) == 0; !t.refused && (rng.IntN(30) == 0 || time.Now().Before(l.resets)) {
		t.reset = one + time.Duration(rng.IntN(5_000_000))
		t.takes += t.reset + time.Duration(rng.IntN(400))*one
	}
	l.failed[what] = t.reset > 0
	return t
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
	there, back := l.trip(what, name, token), l.trip("back "+what, name, token)
	arrive := func(d time.Duration) (value T, err error) {
		time.Sleep(d)
		switch {
		case l.server.isDown():
			err = &dibs.UnavailableError{Op: "simulated", Cause: errCut}
		case there.refused:
			err = &dibs.UnavailableError{Op: "simulated", Refused: true, Cause: errFull}
		default:
			value, err = serve()
		}
		l.w.note("link %d: %s %q %s: %+v, %v", l.number, what, name, token, value, err)
		return value, err
	}
	deadline, _ := ctx.Deadline()
	impatience := there.takes % (50 * time.Microsecond) // or who was asked in one moment is left in the order of the links
	leave := func(after time.Duration, cause error) (none T, err error) {
		time.Sleep(l.own(after+impatience, token))
		l.w.note("link %d: %s %q %s: %v", l.number, what, name, token, cause)
		return none, &dibs.UnavailableError{Op: "simulated", Cause: cause}
	}
	patience := max(time.Until(deadline), 0)
	takes := l.own(there.takes, token)
	switch {
	case there.lost:
		return leave(patience, context.DeadlineExceeded)
	case there.reset > 0 && there.reset < patience:
		go arrive(takes)
		return leave(there.reset, errReset)
	case patience < takes:
		go arrive(takes)
		return leave(patience, context.DeadlineExceeded)
	}
	value, err := arrive(takes)
	takes = l.own(back.takes, token)
	if patience = time.Until(deadline); back.lost || patience < takes {
		return leave(max(patience, 0), context.DeadlineExceeded)
	}
	time.Sleep(takes)
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

func (l *link) Reweigh(ctx context.Context, c dibs.Claim) (dibs.Answer, error) {
	return ask(ctx, l, "reweigh", c.Name, c.Token, func() (dibs.Answer, error) { return l.server.Store.Reweigh(context.Background(), c) })
}

func (l *link) Inspect(ctx context.Context, name string) (dibs.State, error) {
	l.mu.Lock()
	cut := l.cut
	l.mu.Unlock()
	if cut || l.server.isDown() {
		return dibs.State{}, &dibs.UnavailableError{Op: "simulated", Cause: errCut}
	}
	return l.server.Store.Inspect(ctx, name)
}

func (l *link) Watch(ctx context.Context, client string, on func(dibs.Event)) error {
	var mu sync.Mutex
	var last time.Time // when the last push arrives: they keep their order
	return l.server.Store.Watch(ctx, client, func(e dibs.Event) {
		t := l.trip("event", "", e.Token)
		if t.lost {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		d := l.own(max(t.takes, time.Until(last)), cmp.Or(e.Token, "0"))
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
	w := &world{weather: sky, t: t, seed: seed, loud: loud, live: make(map[string][]*grant), fences: make(map[string]uint64), alone: make(map[string]uint64)}
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
			l := &link{Store: s, server: s, w: w, number: i*w.nodes + j, times: make(map[string]uint64), failed: make(map[string]bool), taken: make(map[time.Duration]bool)}
			nodes[j], w.links = l, append(w.links, l)
		}
		store, err := w.config.New(nodes...)
		if err != nil {
			panic(err)
		}
		if w.change != nil {
			w.change(store)
		}
		people = append(people, &person{w: w, locks: dibs.New(store, dibs.TTL(w.ttl)), name: fmt.Sprint("client-", i), moment: time.Duration(2 + i), again: make(map[string]string)})
	}
	for i, p := range people {
		p.other = people[(i+1)%clients]
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
	w.leftovers()
	for _, p := range people {
		_ = p.locks.Close() // what a cut left unknown is told here
	}
	time.Sleep(time.Minute) // what is late arrives
}

// leftovers checks that what was given back is nowhere any more, once a place in a queue
// that nobody keeps is gone, and what is late has arrived.
func (w *world) leftovers() {
	time.Sleep(dibs.ClaimTTL + 3*time.Second)
	for i, s := range w.servers {
		for _, name := range simNames {
			state, _ := s.memory.Inspect(context.Background(), name)
			for _, h := range state.Holders {
				w.mu.Lock()
				w.find("node %d still has %q for %s, who has given it back", i, name, h.Token)
				w.mu.Unlock()
			}
		}
	}
}

// A person is who uses a client.
type person struct {
	w      *world
	locks  *dibs.Client
	name   string
	other  *person       // to whom leases are handed
	moment time.Duration // in which nobody else acts
	turns  int
	again  map[string]string // by name: the token of a call that is over, and may be repeated
}

// token is a new one, or that of the last call for a name once more.
func (p *person) token(name string, repeat bool) string {
	if last := p.again[name]; repeat && last != "" {
		return last
	}
	p.turns++
	p.again[name] = fmt.Sprint(p.name, ":", p.turns)
	return p.again[name]
}

// lock takes a name.
func (p *person) lock(name, token string, lock locking, wait time.Duration, options ...dibs.Option) (*grant, error) {
	time.Sleep(time.Nanosecond) // what he has left to the background has begun
	if p.w.lapse {
		options = append(options, dibs.NoRenew())
	}
	l, shares, err := lock(p.locks, name, append(options, dibs.Wait(wait), dibs.Token(token))...)
	if err != nil {
		p.w.note("%s: %q: %v", token, name, err)
		return nil, err
	}
	return p.w.took(name, l, shares), nil
}

// A locking takes a name, and says whether others may share it.
type locking func(*dibs.Client, string, ...dibs.Option) (l *dibs.Lease, shares bool, err error)

// calm checks that nothing is stuck once all is well again.
func (p *person) calm() {
	const soon = 4*simTTL + 2*dibs.ClaimTTL // also where leases are long: none is left to end by itself
	for _, name := range simNames {
		start := time.Now()
		l, err := p.lock(name, p.token(name, false), alone, soon)
		for err != nil && time.Since(start) < soon { // messages may still be lost
			l, err = p.lock(name, p.token(name, false), alone, soon)
		}
		if err != nil {
			p.w.mu.Lock()
			p.w.find("%s cannot lock %q after the storm, within %v: %v", p.name, name, time.Since(start), err)
			p.w.mu.Unlock()
			continue
		}
		_ = p.frees(l)
	}
}

var simNames = []string{"a", "b", "c"}

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
		does, repeat := chance.IntN(10), chance.IntN(3) == 0
		token := p.token(name, repeat && does != 9)
		err := p.does(does, name, token, wait, hold)
		for try := 0; err != nil && does != 9 && try < 2 && chance.IntN(2) == 0; try++ { // at once
			err = p.does(does, name, token, wait, hold)
		}
		if err == nil && chance.IntN(2) == 0 { // it is finished, and not repeated
			delete(p.again, name)
		}
	}
}

// does one of several things with a name.
func (p *person) does(what int, name, token string, wait, hold time.Duration) error {
	switch what {
	case 0, 1, 2, 3:
		return p.holds(name, token, alone, wait, hold)
	case 4:
		return p.holds(name, token, writing, wait, hold)
	case 5, 6:
		return p.holds(name, token, reading, wait, hold)
	case 7, 8:
		return p.upgrades(name, token, wait, hold)
	default:
		return p.hands(name, token, wait, hold)
	}
}

// holds works alone, or reads.
func (p *person) holds(name, token string, lock locking, wait, hold time.Duration) error {
	g, err := p.lock(name, token, lock, wait)
	if err != nil {
		return err
	}
	if p.w.lapse {
		hold += p.w.ttl
	}
	p.works(g, hold)
	if p.turns%2 == 0 { // some nodes answer that when the lease is given back
		_ = g.lease.Extend(context.Background(), p.w.ttl)
	}
	return p.frees(g)
}

// upgrades reads, writes if it can, and reads again.
func (p *person) upgrades(name, token string, wait, hold time.Duration) error {
	g, err := p.lock(name, token, reading, wait)
	if err != nil {
		return err
	}
	m := p.locks.RWMutex(name)
	for range 2 {
		p.works(g, hold/4)
		if err := m.TryUpgrade(context.Background(), g.lease); err == nil {
			p.w.turned(g, false)
			p.works(g, hold/4)
			p.w.turned(g, true)
			err := m.Downgrade(context.Background(), g.lease)
			p.w.note("%s: downgraded %q: %v", token, name, err)
		}
	}
	return p.frees(g)
}

// hands gives a lease to another process, which renews and releases it: once what was
// sent for it cannot arrive any more, which that process knows nothing of.
func (p *person) hands(name, token string, wait, hold time.Duration) error {
	lock := []locking{alone, writing, reading}[len(token)%3]
	g, err := p.lock(name, token, lock, wait, dibs.NoRenew())
	if err != nil {
		return err
	}
	defer g.lease.Unlock()
	p.works(g, 1200*time.Millisecond)
	delete(p.again, name)       // it is the other one's by now
	hold = max(hold, p.w.ttl/4) // the other one renews
	p.w.ended(g)
	l, err := p.other.locks.Attach(name, token)
	if err != nil {
		return err
	}
	if err = l.Extend(context.Background(), p.w.ttl); err == nil {
		g = p.w.took(name, l, g.shared)
		for range 3 {
			p.works(g, hold/3)
			_ = l.Extend(context.Background(), p.w.ttl)
		}
		p.w.whole(g)
		return p.frees(g)
	}
	p.w.note("%s: attached to %q: %v", token, name, err)
	return l.Unlock()
}

// works lets time pass while a lease is held.
func (p *person) works(g *grant, hold time.Duration) {
	select {
	case <-time.After(hold):
	case <-g.lease.Context().Done():
		time.Sleep(p.moment) // two leases of one client, which were renewed together, end together
		p.w.lost(g)
	}
}

func (p *person) frees(g *grant) error {
	p.w.ended(g)
	err := g.lease.Unlock()
	p.w.note("%s: unlocked %q: %v", g.lease.Token(), g.lease.Name(), err)
	return err
}

func alone(c *dibs.Client, name string, o ...dibs.Option) (*dibs.Lease, bool, error) {
	l, err := c.Mutex(name).Lock(context.Background(), o...)
	return l, false, err
}

func writing(c *dibs.Client, name string, o ...dibs.Option) (*dibs.Lease, bool, error) {
	l, err := c.RWMutex(name).Lock(context.Background(), o...)
	return l, false, err
}

func reading(c *dibs.Client, name string, o ...dibs.Option) (*dibs.Lease, bool, error) {
	l, err := c.RWMutex(name).RLock(context.Background(), o...)
	return l, true, err
}

// A grant is a lease that was told.
type grant struct {
	lease  *dibs.Lease
	shared bool
	ended  bool
}

// took notes a lease, and whether it should have been granted.
func (w *world) took(name string, l *dibs.Lease, shared bool) *grant {
	w.note("%s: has %q, fence %d, shared: %v", l.Token(), name, l.Fence(), shared)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grants++
	g := &grant{lease: l, shared: shared}
	if l.Err() != nil {
		return g // it was over before it was told
	}
	w.live[name] = append(w.live[name], g)
	w.beside(g)
	if l.Fence() == 0 {
		return g // attached
	}
	if last := w.least(name, shared); l.Fence() <= last {
		w.find("fence %d of %q after %d", l.Fence(), name, last)
	}
	w.minted(g)
	return g
}

// least is the largest fence that a new one must be beyond. Those of readers that hold at
// the same time are in no order. The caller holds w.mu.
func (w *world) least(name string, shared bool) uint64 {
	if shared {
		return w.alone[name]
	}
	return w.fences[name]
}

// minted notes a fence. The caller holds w.mu.
func (w *world) minted(g *grant) {
	name, fence := g.lease.Name(), g.lease.Fence()
	w.fences[name] = max(w.fences[name], fence)
	if !g.shared {
		w.alone[name] = max(w.alone[name], fence)
	}
}

// beside checks that nobody holds beside a grant who must not. The caller holds w.mu.
func (w *world) beside(g *grant) {
	name := g.lease.Name()
	w.live[name] = slices.DeleteFunc(w.live[name], func(o *grant) bool { return o.ended || o.lease.Err() != nil })
	for _, o := range w.live[name] {
		if o != g && (!o.shared || !g.shared) {
			w.find("%q is held by %s and %s", name, o.lease.Token(), g.lease.Token())
		}
	}
}

// turned notes that a reader has become a writer, or is about to become a reader.
func (w *world) turned(g *grant, shared bool) {
	w.note("%s: turned %q, fence %d, shared: %v", g.lease.Token(), g.lease.Name(), g.lease.Fence(), shared)
	w.mu.Lock()
	defer w.mu.Unlock()
	g.shared = shared
	if !shared && g.lease.Err() == nil {
		w.beside(g)
		w.minted(g)
	}
}

// ended notes that a grant is given back, or handed to another process.
func (w *world) ended(g *grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g.ended = true
}

// whole checks that no node believes that others may share what is held alone.
func (w *world) whole(g *grant) {
	if g.shared || g.lease.Err() != nil {
		return
	}
	for i, s := range w.servers {
		state, _ := s.memory.Inspect(context.Background(), g.lease.Name())
		for _, h := range state.Holders {
			if h.Token == g.lease.Token() && h.Weight != 0 {
				w.mu.Lock()
				w.find("node %d has %q for %s as a reader's", i, g.lease.Name(), g.lease.Token())
				w.mu.Unlock()
			}
		}
	}
}

// lost checks that somebody can have taken a lease of which that is told.
func (w *world) lost(g *grant) {
	var lost *dibs.LostError
	if !errors.As(g.lease.Err(), &lost) || lost.Why != dibs.Taken {
		return
	}
	votes := 0
	for _, s := range w.servers {
		state, _ := s.memory.Inspect(context.Background(), lost.Name)
		if slices.ContainsFunc(state.Holders, func(h dibs.Holder) bool { return h.Token == lost.Token }) {
			votes++
		}
	}
	if votes > len(w.servers)/2 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.find("%s is told that %q was taken, and %d of %d nodes hold it for him", lost.Token, lost.Name, votes, len(w.servers))
	}
}

// storm is what goes wrong. It ends a moment later than the work, or chance would decide
// whether the last messages still meet it.
func (w *world) storm(chance *rand.Rand, span time.Duration) {
	left := func() time.Duration { return span + 1 - time.Since(w.begin) }
	sleep := func(most time.Duration) { time.Sleep(min(time.Duration(chance.Int64N(int64(most))), left())) }
	for left() > 0 {
		sleep(400 * time.Millisecond)
		at := chance.IntN(len(w.servers))
		s := w.servers[at]
		switch chance.IntN(8) {
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
		default:
			client := chance.IntN(len(w.links) / len(w.servers))
			most := time.Duration(chance.Int64N(int64(200 * time.Millisecond)))
			w.note("connections of client-%d are reset for %v", client, most)
			for _, l := range w.links[client*len(w.servers):][:len(w.servers)] {
				l.set(func(l *link) { l.resets = time.Now().Add(most) })
			}
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
		"clocks drift more than is allowed for": func(w *weather) { w.drift, w.lapse, w.ttl, w.config.Longest = 0.05, true, simTTL, simTTL },
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

// TestSimulationRepeats: a seed that fails can be had again, each message of it. What a
// Client does in the background for one lease in one moment, to release it and to undo an
// acquire that was not answered, has no order: then it may take a few runs.
func TestSimulationRepeats(t *testing.T) {
	const runs = 8
	for seed := uint64(1); seed <= *twiceFlag; seed++ {
		var before [][]string
		for {
			now := simulate(t, seed, fair(seed), true).history()
			if slices.ContainsFunc(before, func(h []string) bool { return slices.Equal(h, now) }) {
				break
			}
			if before = append(before, now); len(before) == runs {
				a, b := before[0], now
				same := 0
				for same < min(len(a), len(b)) && a[same] == b[same] {
					same++
				}
				t.Errorf("seed %d went differently each time: %q, and then %q", seed, a[same:min(same+1, len(a))], b[same:min(same+1, len(b))])
				break
			}
		}
	}
}

// history is the log, in an order that owes nothing to chance: what happens in one moment
// is written down by several goroutines.
func (w *world) history() []string { return slices.Sorted(slices.Values(w.log)) }
