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
	"github.com/dibslock/dibs/cohort"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// The simulation runs clients for a quorum of memory stores in virtual time. It injects these
// faults. Messages are late, overtake each other and are lost. Connections are reset although the
// message arrives. Requests are refused. Nodes stop, and come back with or without their data.
// Links are cut, processes are suspended, and clocks drift. Clients lock, read, write, upgrade,
// reuse a token, and hand a lease over to another process. A seed determines all this, so a run can
// be repeated: go test -run TestSimulation -seed 42 -v.
//
// Nothing determines the order of two goroutines that can run at the same instant in virtual time.
// Three rules remove most of this randomness. No two messages arrive in the same nanosecond (see
// link.uniqueArrival). A message's fate depends on its content, not on when it was sent. Tokens are
// not random, because requests with the same ticket are served in the order of their tokens.

var (
	seedFlag   = flag.Uint64("seed", 0, "run the simulation with this seed only and print its log")
	repeatFlag = flag.Uint64("twice", 10, "number of simulation seeds to run twice")
	seedsFlag  = flag.String("seeds", "1-200", "range of seeds for the simulation")
)

// conditions describe a simulated world.
type conditions struct {
	nodes      int
	clockDrift float64 // maximum for a node's clock, in both directions
	losesData  bool    // nodes lose their data when they stop
	ttl        time.Duration
	noRenewal  bool          // leases are held until their TTL ends
	cohorts    bool          // two users share a client with cohorts, and tokens are random
	span       time.Duration // of the users' work
	sabotage   func(*Store)  // breaks the quorum, to check that the simulation detects it
	config     settings
}

const simTTL = 2 * time.Second

// defaultConditions returns conditions in which a quorum must work. In every second world leases
// are too long to expire in the run, so that a lease left behind is detected.
func defaultConditions(seed uint64) conditions {
	w := conditions{nodes: []int{3, 5, 4, 5, 1}[seed%5], clockDrift: 0.01, span: 12 * time.Second}
	if seed%2 == 0 {
		w.ttl = 30 * time.Second
	} else {
		w.ttl, w.losesData = simTTL, true
	}
	w.config.maxTTL = w.ttl
	return w
}

// A world is a simulation run.
type world struct {
	conditions
	t       *testing.T
	seed    uint64
	begin   time.Time
	servers []*server
	links   []*link

	mu              sync.Mutex
	held            map[string][]*grant // grants by name
	fences          map[string]uint64   // largest fence by name
	exclusiveFences map[string]uint64   // an exclusive lease's largest fence by name
	grants          int
	violations      []string // errors found
	logging         bool     // keep a log
	log             []string
}

func (w *world) rng(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, stream)) }

func (w *world) logf(format string, args ...any) {
	if !w.logging {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	line := fmt.Sprintf("%13.9f  ", time.Since(w.begin).Seconds()) + fmt.Sprintf(format, args...)
	w.log = append(w.log, nodeName.ReplaceAllString(line, "N"))
}

var nodeName = regexp.MustCompile("[A-Z2-7]{26}") // node names are random

// violationf records a violated guarantee. The caller holds w.mu.
func (w *world) violationf(format string, args ...any) {
	w.violations = append(w.violations, fmt.Sprintf("%v: ", time.Since(w.begin))+fmt.Sprintf(format, args...))
}

// A server is a node, which can be down.
type server struct {
	driver.Voter
	memory *memstore.Store
	mu     sync.Mutex
	down   bool
}

func (s *server) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

func (s *server) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// A link is a client's connection to a node.
type link struct {
	driver.Voter // the server
	server       *server
	w            *world
	number       int

	mu          sync.Mutex
	sentCount   map[string]uint64      // how often a message was sent
	failed      map[string]bool        // messages whose last sending was reset
	arrivals    map[time.Duration]bool // times at which a message arrives
	cut         bool
	delay       time.Duration // added to the usual delay
	frozenUntil time.Time     // the process is suspended until then
	resetUntil  time.Time     // each connection is reset until then
}

var (
	errCut   = errors.New("connection refused")
	errReset = errors.New("connection reset")
	errFull  = errors.New("out of memory")
)

// A transit is a message's fate.
type transit struct {
	delay   time.Duration
	lost    bool
	reset   time.Duration // if not zero: when the sender sees a connection reset
	refused bool
}

func (l *link) transit(what, name, token string) (t transit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what += " " + name + token
	l.sentCount[what]++
	h := fnv.New64a()
	h.Write([]byte(what))
	rng := rand.New(rand.NewPCG(l.w.seed<<8+uint64(l.number)+l.sentCount[what]<<32, h.Sum64()))
	const one = time.Millisecond
	t.delay = one/5 + time.Duration(rng.ExpFloat64()*float64(one)) + l.delay
	if rng.IntN(50) == 0 {
		t.delay += time.Duration(rng.IntN(1000)) * one
	}
	t.delay += max(time.Until(l.frozenUntil), 0)
	t.lost = l.cut || rng.IntN(200) == 0
	again := l.failed[what]
	if t.refused = rng.IntN(100) == 0 || again && rng.IntN(3) == 0; !t.refused && (rng.IntN(30) == 0 || time.Now().Before(l.resetUntil)) {
		t.reset = one + time.Duration(rng.IntN(5_000_000))
		t.delay += t.reset + time.Duration(rng.IntN(400))*one
	}
	l.failed[what] = t.reset > 0
	return t
}

// uniqueArrival returns the first delay of at least d at which no other message arrives. A link's
// requests at the same instant have tokens with different last digits. Otherwise the order of two
// requests for the same time would be random.
func (l *link) uniqueArrival(d time.Duration, token string) time.Duration {
	// links is larger than the number of links, and a prime, so that delays in whole milliseconds
	// do not map a link's times to another link's.
	const links, digits = 31, 10
	const round = links * digits
	digit := time.Duration(token[len(token)-1] - '0')
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.w.begin)
	at := now + d
	at += round - at%round + links*digit + time.Duration(l.number)
	for l.arrivals[at] {
		at += round
	}
	l.arrivals[at] = true
	return at - now
}

// roundTrip sends a request to the server, serves it, and returns the reply. The request arrives
// even if the caller stopped waiting.
func roundTrip[T any](ctx context.Context, l *link, what, name, token string, serve func() (T, error)) (T, error) {
	there, back := l.transit(what, name, token), l.transit("back "+what, name, token)
	arrive := func(d time.Duration) (value T, err error) {
		time.Sleep(d)
		switch {
		case l.server.isDown():
			err = &driver.UnavailableError{Op: "simulated", Cause: errCut}
		case there.refused:
			err = &driver.UnavailableError{Op: "simulated", Refused: true, Cause: errFull}
		default:
			value, err = serve()
		}
		l.w.logf("link %d: %s %q %s: %+v, %v", l.number, what, name, token, value, err)
		return value, err
	}
	deadline, _ := ctx.Deadline()
	offset := there.delay % (50 * time.Microsecond) // otherwise requests sent at the same instant would end in the links' order
	leave := func(after time.Duration, cause error) (none T, err error) {
		time.Sleep(l.uniqueArrival(after+offset, token))
		l.w.logf("link %d: %s %q %s: %v", l.number, what, name, token, cause)
		return none, &driver.UnavailableError{Op: "simulated", Cause: cause}
	}
	timeLeft := max(time.Until(deadline), 0)
	delay := l.uniqueArrival(there.delay, token)
	switch {
	case there.lost:
		return leave(timeLeft, context.DeadlineExceeded)
	case there.reset > 0 && there.reset < timeLeft:
		go arrive(delay)
		return leave(there.reset, errReset)
	case timeLeft < delay:
		go arrive(delay)
		return leave(timeLeft, context.DeadlineExceeded)
	}
	value, err := arrive(delay)
	delay = l.uniqueArrival(back.delay, token)
	if timeLeft = time.Until(deadline); back.lost || timeLeft < delay {
		return leave(max(timeLeft, 0), context.DeadlineExceeded)
	}
	time.Sleep(delay)
	return value, err
}

func (l *link) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return roundTrip(ctx, l, "acquire", r.Name, r.Token, func() (driver.AcquireReply, error) { return l.server.Voter.Acquire(context.Background(), r) })
}

func (l *link) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	_, err := roundTrip(ctx, l, "cancel", r.Name, r.Token, func() (bool, error) { return true, l.server.Voter.Cancel(context.Background(), r) })
	return err
}

func (l *link) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	return roundTrip(ctx, l, "release", r.Name, r.Token, func() (bool, error) { return l.server.Voter.Release(context.Background(), r) })
}

func (l *link) Extend(ctx context.Context, holds []driver.ExtendRequest) []error {
	errs, err := roundTrip(ctx, l, "extend", holds[0].Name, holds[0].Token, func() ([]error, error) { return l.server.Voter.Extend(context.Background(), holds), nil })
	if err != nil {
		errs = make([]error, len(holds))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

func (l *link) Resize(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return roundTrip(ctx, l, "resize", r.Name, r.Token, func() (driver.AcquireReply, error) { return l.server.Voter.Resize(context.Background(), r) })
}

func (l *link) ReserveFences(ctx context.Context, r driver.FenceRequest) (driver.FenceReply, error) {
	return roundTrip(ctx, l, "fences", r.Name, r.Token, func() (driver.FenceReply, error) {
		return l.server.memory.ReserveFences(context.Background(), r)
	})
}

func (l *link) Inspect(ctx context.Context, name string) (driver.State, error) {
	l.mu.Lock()
	cut := l.cut
	l.mu.Unlock()
	if cut || l.server.isDown() {
		return driver.State{}, &driver.UnavailableError{Op: "simulated", Cause: errCut}
	}
	return l.server.Voter.Inspect(ctx, name)
}

func (l *link) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	var mu sync.Mutex
	var last time.Time // when the last notification arrived: notifications keep their order
	return l.server.Voter.Watch(ctx, client, busy, func(e driver.Event) {
		t := l.transit("event", "", e.Token)
		if t.lost {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		d := l.uniqueArrival(max(t.delay, time.Until(last)), cmp.Or(e.Token, "0"))
		last = time.Now().Add(d)
		time.AfterFunc(d, func() {
			if ctx.Err() == nil {
				on(e)
			}
		})
	})
}

// simulate runs a world to its end and returns it.
func simulate(t *testing.T, seed uint64, c conditions, logging bool) *world {
	w := &world{conditions: c, t: t, seed: seed, logging: logging, held: make(map[string][]*grant), fences: make(map[string]uint64), exclusiveFences: make(map[string]uint64)}
	synctest.Test(t, func(*testing.T) { w.run() })
	return w
}

func (w *world) run() {
	const clients = 5
	w.begin = time.Now()
	chance := w.rng(1)
	for range w.nodes {
		rate := 1 + w.clockDrift*(2*chance.Float64()-1)
		clock := func() time.Time { return w.begin.Add(time.Duration(rate * float64(time.Since(w.begin)))) }
		memory := memstore.New(memstore.Clock(clock))
		w.servers = append(w.servers, &server{Voter: memory, memory: memory})
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	time.AfterFunc(w.span, end)
	var users []*user
	var group sync.WaitGroup
	for i := range clients {
		nodes := make([]driver.Voter, w.nodes)
		for j, s := range w.servers {
			l := &link{Voter: s, server: s, w: w, number: i*w.nodes + j, sentCount: make(map[string]uint64), failed: make(map[string]bool), arrivals: make(map[time.Duration]bool)}
			nodes[j], w.links = l, append(w.links, l)
		}
		store, err := newStore(nodes, w.config)
		if err != nil {
			panic(err)
		}
		if w.sabotage != nil {
			w.sabotage(store)
		}
		locks := dibs.New(store, dibs.TTL(w.ttl))
		u := &user{w: w, locks: locks, name: fmt.Sprint("client-", i), offset: time.Duration(2 + i), lastToken: make(map[string]string)}
		if w.cohorts {
			u.groups = make(map[string]*cohort.Cohort)
			for _, name := range simNames {
				u.groups[name] = cohort.New(locks.Mutex(name), cohort.Passes(1+i%4), cohort.IdleHold(time.Duration(i/2%2)*w.ttl/10))
			}
			if i%2 == 1 { // it shares the client before it
				u.locks, u.groups = users[i-1].locks, users[i-1].groups
			}
		}
		users = append(users, u)
	}
	for i, p := range users {
		p.other = users[(i+1)%clients]
		group.Go(func() { p.work(ctx, w.rng(uint64(100+i))) })
	}
	group.Go(func() { w.injectFaults(chance) })
	group.Wait()
	time.Sleep(time.Nanosecond) // the users' last calls still meet the faults
	for _, l := range w.links {
		l.mu.Lock()
		l.cut, l.delay, l.frozenUntil = false, 0, time.Time{}
		l.mu.Unlock()
	}
	for _, s := range w.servers {
		s.setDown(false)
	}
	for _, p := range users {
		p.checkAvailable()
	}
	w.checkLeftovers()
	for _, p := range users {
		_ = p.locks.Close() // retries releases whose outcome is unknown
	}
	time.Sleep(time.Minute) // late messages arrive
}

// checkLeftovers checks that no node has a released lease. By then unused queue entries have
// expired, and late messages have arrived.
func (w *world) checkLeftovers() {
	time.Sleep(driver.WaiterTTL + 3*time.Second)
	for i, s := range w.servers {
		for _, name := range simNames {
			state, _ := s.memory.Inspect(context.Background(), name)
			for _, h := range state.Holders {
				w.mu.Lock()
				w.violationf("node %d still has %q for %s, which has released it", i, name, h.Token)
				w.mu.Unlock()
			}
		}
	}
}

// A user uses a single client.
type user struct {
	w         *world
	locks     *dibs.Client
	name      string
	groups    map[string]*cohort.Cohort // by name; nil without cohorts
	other     *user                     // receives handed-over leases
	offset    time.Duration             // unique delay
	calls     int
	lastToken map[string]string // by name: the last call's token, which may be repeated
}

// token returns a new token, or repeats the last call's token for the name.
func (u *user) token(name string, repeat bool) string {
	if last := u.lastToken[name]; repeat && last != "" {
		return last
	}
	u.calls++
	u.lastToken[name] = fmt.Sprint(u.name, ":", u.calls)
	return u.lastToken[name]
}

// startBackground lets the last call's background work start, which otherwise races the next call.
func startBackground() { time.Sleep(time.Nanosecond) }

// lock acquires a name.
func (u *user) lock(name, token string, lock lockFunc, wait time.Duration, options ...dibs.Option) (*grant, error) {
	startBackground()
	if u.w.noRenewal {
		options = append(options, dibs.NoRenew())
	}
	if !u.w.cohorts {
		options = append(options, dibs.OwnerToken(token))
	}
	l, shares, err := lock(u, name, append(options, dibs.Wait(wait))...)
	if err != nil {
		u.w.logf("%s: %q: %v", token, name, err)
		return nil, err
	}
	return u.w.recordGrant(name, l, shares), nil
}

// A lockFunc acquires a name, and reports whether the lease is shared.
type lockFunc func(*user, string, ...dibs.Option) (l heldLease, shares bool, err error)

// A heldLease is a lease from a Client or a cohort.
type heldLease interface {
	Name() string
	Fence() uint64
	Context() context.Context
	Err() error
	Unlock() error
}

// checkAvailable checks that every name can be locked after the faults.
func (u *user) checkAvailable() {
	const soon = 4*simTTL + 2*driver.WaiterTTL // the same with long leases: all leases were released, so none must expire
	for _, name := range simNames {
		start := time.Now()
		l, err := u.lock(name, u.token(name, false), lockMutex, soon)
		for err != nil && time.Since(start) < soon { // messages may still be lost
			l, err = u.lock(name, u.token(name, false), lockMutex, soon)
		}
		if err != nil {
			u.w.mu.Lock()
			u.w.violationf("%s cannot lock %q within %v after the faults have ended: %v", u.name, name, time.Since(start), err)
			u.w.mu.Unlock()
			continue
		}
		_ = u.unlock(l)
	}
}

var simNames = []string{"a", "b", "c"}

// work acquires and releases names.
func (u *user) work(ctx context.Context, chance *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(chance.IntN(50_000_000)))
		name := simNames[chance.IntN(len(simNames))]
		wait := time.Duration(0)
		if chance.IntN(3) > 0 { // in nanoseconds, so that nothing else is due at the same time
			wait = time.Duration(chance.Int64N(int64(3 * time.Second)))
		}
		hold := time.Duration(chance.IntN(100_000_000))
		if chance.IntN(8) == 0 {
			hold = time.Duration(chance.Int64N(int64(3 * simTTL)))
		}
		does, repeat := chance.IntN(10), chance.IntN(3) == 0
		token := u.token(name, repeat && does != 9)
		err := u.perform(does, name, token, wait, hold)
		for try := 0; err != nil && does != 9 && try < 2 && chance.IntN(2) == 0; try++ { // without a pause
			err = u.perform(does, name, token, wait, hold)
		}
		if err == nil && chance.IntN(2) == 0 { // the call is complete and not repeated
			delete(u.lastToken, name)
		}
	}
}

// perform does one of several operations on a name.
func (u *user) perform(what int, name, token string, wait, hold time.Duration) error {
	switch what {
	case 0, 1, 2, 3:
		return u.holdOnce(name, token, lockInCohort, wait, hold)
	case 4:
		return u.holdOnce(name, token, lockWriter, wait, hold)
	case 5, 6:
		return u.holdOnce(name, token, lockReader, wait, hold)
	case 7, 8:
		return u.upgrade(name, token, wait, hold)
	default:
		return u.handOver(name, token, wait, hold)
	}
}

// holdOnce acquires a lease, holds it and releases it.
func (u *user) holdOnce(name, token string, lock lockFunc, wait, hold time.Duration) error {
	g, err := u.lock(name, token, lock, wait)
	if err != nil {
		return err
	}
	if u.w.noRenewal {
		hold += u.w.ttl
	}
	u.hold(g, hold)
	if u.calls%2 == 0 { // some nodes answer this after the lease's release
		startBackground()
		if l, ok := g.lease.(*dibs.Lease); ok {
			_ = l.Extend(context.Background(), u.w.ttl)
		}
	}
	return u.unlock(g)
}

// upgrade reads, writes if the upgrade succeeds, and reads again.
func (u *user) upgrade(name, token string, wait, hold time.Duration) error {
	g, err := u.lock(name, token, lockReader, wait)
	if err != nil {
		return err
	}
	lease := g.lease.(*dibs.Lease)
	for range 2 {
		u.hold(g, hold/4)
		startBackground()
		if err := lease.TryUpgrade(context.Background()); err == nil {
			u.w.recordResize(g, false)
			u.hold(g, hold/4)
			startBackground()
			u.w.recordResize(g, true)
			err := lease.Downgrade(context.Background())
			u.w.logf("%s: downgraded %q: %v", token, name, err)
		}
	}
	return u.unlock(g)
}

// handOver gives a lease to another process, which renews and releases it. It waits until no
// message from the first process can still arrive, because the other process cannot know about
// them.
func (u *user) handOver(name, token string, wait, hold time.Duration) error {
	lock := []lockFunc{lockMutex, lockWriter, lockReader}[len(token)%3]
	g, err := u.lock(name, token, lock, wait, dibs.NoRenew())
	if err != nil {
		return err
	}
	defer g.lease.Unlock()
	u.hold(g, 1200*time.Millisecond)
	delete(u.lastToken, name)   // the token is now the other user's
	hold = max(hold, u.w.ttl/4) // the other user renews the lease
	u.w.recordEnd(g)
	startBackground()
	l, err := u.other.locks.Attach(context.Background(), dibs.NewHandle(name, token), dibs.TTL(u.w.ttl))
	if err != nil {
		u.w.logf("%s: attach to %q: %v", token, name, err)
		return err
	}
	g = u.w.recordGrant(name, l, g.shared)
	for range 3 {
		u.hold(g, hold/3)
		startBackground()
		_ = l.Extend(context.Background(), u.w.ttl)
	}
	u.w.checkMode(g)
	return u.unlock(g)
}

// hold lets time pass while a lease is held.
func (u *user) hold(g *grant, hold time.Duration) {
	select {
	case <-time.After(hold):
	case <-g.lease.Context().Done():
		time.Sleep(u.offset) // two of a client's leases that were renewed together end together
		u.w.checkLoss(g)
	}
}

func (u *user) unlock(g *grant) error {
	startBackground()
	u.w.recordEnd(g)
	err := g.lease.Unlock()
	u.w.logf("%s: unlocked %q, fence %d: %v", u.name, g.lease.Name(), g.lease.Fence(), err)
	return err
}

func lockMutex(u *user, name string, o ...dibs.Option) (heldLease, bool, error) {
	l, err := u.locks.Mutex(name).Lock(context.Background(), o...)
	return l, false, err
}

// lockInCohort is lockMutex with the name's cohort, if there is one.
func lockInCohort(u *user, name string, o ...dibs.Option) (heldLease, bool, error) {
	if u.groups == nil || u.w.noRenewal {
		return lockMutex(u, name, o...)
	}
	l, err := u.groups[name].Lock(context.Background(), o...)
	return l, false, err
}

func lockWriter(u *user, name string, o ...dibs.Option) (heldLease, bool, error) {
	l, err := u.locks.RWMutex(name).Writer().Lock(context.Background(), o...)
	return l, false, err
}

func lockReader(u *user, name string, o ...dibs.Option) (heldLease, bool, error) {
	l, err := u.locks.RWMutex(name).Reader().Lock(context.Background(), o...)
	return l, true, err
}

// A grant is a lease returned to a user.
type grant struct {
	lease  heldLease
	shared bool
	ended  bool
}

// token returns the lease's token; a cohort's lease has none.
func (g *grant) token() string {
	if l, ok := g.lease.(*dibs.Lease); ok {
		return string(l.Token())
	}
	return ""
}

// recordGrant records a lease and checks that it was allowed.
func (w *world) recordGrant(name string, l heldLease, shared bool) *grant {
	g := &grant{lease: l, shared: shared}
	w.logf("%s: acquired %q, fence %d, shared: %v", g.token(), name, l.Fence(), shared)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grants++
	if l.Err() != nil {
		return g // it had ended before Lock returned
	}
	w.held[name] = append(w.held[name], g)
	w.checkExclusion(g)
	if l.Fence() == 0 {
		return g // attached
	}
	if last := w.previousFence(name, shared); l.Fence() <= last {
		w.violationf("fence %d of %q after %d", l.Fence(), name, last)
	}
	w.recordFence(g)
	return g
}

// previousFence returns the fence that a new fence must exceed. Fences for concurrent readers are
// in no order. The caller holds w.mu.
func (w *world) previousFence(name string, shared bool) uint64 {
	if shared {
		return w.exclusiveFences[name]
	}
	return w.fences[name]
}

// recordFence records a fence. The caller holds w.mu.
func (w *world) recordFence(g *grant) {
	name, fence := g.lease.Name(), g.lease.Fence()
	w.fences[name] = max(w.fences[name], fence)
	if !g.shared {
		w.exclusiveFences[name] = max(w.exclusiveFences[name], fence)
	}
}

// checkExclusion checks that no other lease conflicts with a grant. The caller holds w.mu.
func (w *world) checkExclusion(g *grant) {
	name := g.lease.Name()
	w.held[name] = slices.DeleteFunc(w.held[name], func(o *grant) bool { return o.ended || o.lease.Err() != nil })
	for _, o := range w.held[name] {
		if o != g && (!o.shared || !g.shared) {
			w.violationf("%q is held by %s and %s", name, o.token(), g.token())
		}
	}
}

// recordResize records that a reader became a writer, or is about to become a reader.
func (w *world) recordResize(g *grant, shared bool) {
	w.logf("%s: resized %q, fence %d, shared: %v", g.token(), g.lease.Name(), g.lease.Fence(), shared)
	w.mu.Lock()
	defer w.mu.Unlock()
	g.shared = shared
	if !shared && g.lease.Err() == nil {
		w.checkExclusion(g)
		w.recordFence(g)
	}
}

// recordEnd records that a grant is being released or handed over.
func (w *world) recordEnd(g *grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g.ended = true
}

// checkMode checks that no node stores an exclusive lease as a shared lease.
func (w *world) checkMode(g *grant) {
	if g.shared || g.lease.Err() != nil {
		return
	}
	for i, s := range w.servers {
		state, _ := s.memory.Inspect(context.Background(), g.lease.Name())
		for _, h := range state.Holders {
			if h.Token == g.token() && h.Weight != 0 {
				w.mu.Lock()
				w.violationf("node %d has %q for %s as a shared lease", i, g.lease.Name(), g.token())
				w.mu.Unlock()
			}
		}
	}
}

// checkLoss checks that a lease reported as taken does not have a majority.
func (w *world) checkLoss(g *grant) {
	var lost *dibs.LostError
	if !errors.As(g.lease.Err(), &lost) || lost.Reason != dibs.ReasonMissing {
		return
	}
	votes := 0
	for _, s := range w.servers {
		state, _ := s.memory.Inspect(context.Background(), lost.Name)
		if slices.ContainsFunc(state.Holders, func(h driver.Holder) bool { return h.Token == string(lost.Token) }) {
			votes++
		}
	}
	if votes > len(w.servers)/2 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.violationf("%s was notified that %q was taken, but %d of %d nodes still hold it", lost.Token, lost.Name, votes, len(w.servers))
	}
}

// injectFaults injects faults during the run. It ends a moment after the users' work;
// otherwise it would be random whether the last messages meet a fault.
func (w *world) injectFaults(chance *rand.Rand) {
	left := func() time.Duration { return w.span + 1 - time.Since(w.begin) }
	sleep := func(most time.Duration) { time.Sleep(min(time.Duration(chance.Int64N(int64(most))), left())) }
	for left() > 0 {
		sleep(400 * time.Millisecond)
		at := chance.IntN(len(w.servers))
		s := w.servers[at]
		switch chance.IntN(8) {
		case 0:
			w.logf("node %d stops", at)
			s.setDown(true)
			sleep(simTTL)
			s.setDown(false)
			w.logf("node %d is back", at)
		case 1:
			if w.losesData {
				w.logf("node %d forgets everything", at)
				s.memory.LoseData()
			}
		case 2:
			i := chance.IntN(len(w.links))
			w.logf("link %d is cut", i)
			w.links[i].set(func(l *link) { l.cut = true })
			sleep(2 * simTTL)
			w.links[i].set(func(l *link) { l.cut = false })
			w.logf("link %d is restored", i)
		case 3:
			client := chance.IntN(len(w.links) / len(w.servers))
			most := 2 * simTTL
			if chance.IntN(4) == 0 {
				most = 2 * driver.WaiterTTL // longer than a queue entry lives without a heartbeat
			}
			stop := time.Duration(chance.Int64N(int64(most)))
			w.logf("client-%d suspended for %v", client, stop)
			for _, l := range w.links[client*len(w.servers):][:len(w.servers)] {
				l.set(func(l *link) { l.frozenUntil = time.Now().Add(stop) })
			}
		case 4:
			i := chance.IntN(len(w.links))
			late := time.Duration(chance.IntN(300)) * time.Millisecond
			w.logf("link %d delayed by %v", i, late)
			w.links[i].set(func(l *link) { l.delay = late })
		default:
			client := chance.IntN(len(w.links) / len(w.servers))
			most := time.Duration(chance.Int64N(int64(200 * time.Millisecond)))
			w.logf("connections of client-%d reset for %v", client, most)
			for _, l := range w.links[client*len(w.servers):][:len(w.servers)] {
				l.set(func(l *link) { l.resetUntil = time.Now().Add(most) })
			}
		}
	}
}

func (l *link) set(change func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// TestSimulation checks a quorum under its assumed conditions: leases should exclude each other,
// fences should grow, and no name should stay locked afterwards.
func TestSimulation(t *testing.T) {
	if *seedFlag != 0 {
		w := simulate(t, *seedFlag, defaultConditions(*seedFlag), true)
		for _, line := range w.log {
			t.Log(line)
		}
		w.report(t)
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
				w := simulate(t, seed, defaultConditions(seed), false)
				grants.Add(int64(w.grants))
				w.report(t)
			}
		})
	}
}

func (w *world) report(t *testing.T) {
	t.Helper()
	for _, found := range w.violations[:min(len(w.violations), 3)] {
		t.Errorf("seed %d, %d nodes: %s", w.seed, w.nodes, found)
	}
}

// TestSimulationSees checks that the simulation detects a deliberately broken quorum.
func TestSimulationSees(t *testing.T) {
	for name, sabotage := range map[string]func(*conditions){
		"no recovery window": func(w *conditions) { w.config.durable = true },
		"one vote less than a majority": func(w *conditions) {
			w.sabotage = func(s *Store) {
				s.config.Majority = max(s.config.Majority-1, 1)
				s.runner.machine.Majority = s.config.Majority
			}
		},
		"clocks drift more than allowed": func(w *conditions) { w.clockDrift, w.noRenewal, w.ttl, w.config.maxTTL = 0.05, true, simTTL, simTTL },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 2000; seed++ {
				c := defaultConditions(seed)
				sabotage(&c)
				if w := simulate(t, seed, c, false); len(w.violations) > 0 {
					t.Logf("FIGURE seed %d: %s", seed, w.violations[0])
					return
				}
			}
			t.Error("no violation found in 2000 seeds")
		})
	}
}

// Clients with cohorts should also keep a quorum's promises. Their tokens are random, so that a
// seed does not repeat a run exactly.
func TestSimulationOfCohorts(t *testing.T) {
	const seeds, lots = 60, 4
	for lot := range uint64(lots) {
		t.Run(fmt.Sprint(lot), func(t *testing.T) {
			t.Parallel()
			for seed := 1 + lot; seed <= seeds && !t.Failed(); seed += lots {
				c := defaultConditions(seed)
				c.cohorts = true
				simulate(t, seed, c, false).report(t)
			}
		})
	}
}

// TestSimulationRepeats checks that a seed repeats every message in its run. Nothing determines the
// order of two Client goroutines at the same instant, and a single such difference changes
// everything after it. So the run is short: out of 32 runs, 15 or more have the same history. Two
// equal runs are enough.
func TestSimulationRepeats(t *testing.T) {
	const runs = 8
	for seed := uint64(1); seed <= *repeatFlag; seed++ {
		c := defaultConditions(seed)
		c.span = time.Second
		var before [][]string
		for {
			now := simulate(t, seed, c, true).history()
			if slices.ContainsFunc(before, func(h []string) bool { return slices.Equal(h, now) }) {
				break
			}
			if before = append(before, now); len(before) == runs {
				a, b := before[0], now
				same := 0
				for same < min(len(a), len(b)) && a[same] == b[same] {
					same++
				}
				t.Errorf("seed %d differed in each run: %q, and then %q", seed, a[same:min(same+1, len(a))], b[same:min(same+1, len(b))])
				break
			}
		}
	}
}

// history returns the log in a fixed order: several goroutines write the entries for the same
// instant.
func (w *world) history() []string { return slices.Sorted(slices.Values(w.log)) }
