//go:build linux

package goredisstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// event is a worker's report on a multi-lock, identified by its token.
type event struct {
	what  string // acquired; releasing; keeps: will never release; cancelling; cancelled
	token string // ends with its names' numbers: "…:1-4-7"
	at    time.Duration
	wait  time.Duration // for acquired
}

// namesOf returns the names in a token's multi-lock.
func namesOf(token string, names []string) []string {
	var locked []string
	numbers := token[strings.LastIndex(token, ":")+1:]
	for number := range strings.SplitSeq(numbers, "-") {
		var n int
		if _, err := fmt.Sscan(number, &n); err == nil && n < len(names) {
			locked = append(locked, names[n])
		}
	}
	return locked
}

// lockTriples locks random triples of names while goOn returns true, and until it has held a
// triple. It returns the first unexpected error.
func lockTriples(locks *dibs.Client, id string, names []string, goOn func() bool, emit func(event)) error {
	for n, served := 0, false; goOn() || !served; n++ {
		of := rand.Perm(len(names))[:3]
		token := fmt.Sprintf("%s.%d:%d-%d-%d", id, n, of[0], of[1], of[2])
		held, err := lockTriple(locks.All([]string{names[of[0]], names[of[1]], names[of[2]]}), token, emit)
		if err != nil {
			return fmt.Errorf("%s: %w", token, err)
		}
		served = served || held
	}
	return nil
}

// lockTriple acquires and releases a multi-lock once. In every fifth case it cancels its context,
// before or after the acquisition.
func lockTriple(m *dibs.MultiMutex, token string, emit func(event)) (held bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*generous) // each dying process may delay it by seconds
	defer cancel()
	if rand.N(5) == 0 {
		timer := time.AfterFunc(rand.N(20*time.Millisecond), func() {
			emit(event{what: "cancelling", token: token, at: mono()})
			cancel()
		})
		defer timer.Stop()
	}
	called := mono()
	l, err := m.Lock(ctx, dibs.OwnerToken(token))
	at := mono()
	if errors.Is(err, context.Canceled) {
		emit(event{what: "cancelled", token: token, at: at})
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("after %v: %w", at-called, err)
	}
	emit(event{what: "acquired", token: token, at: at, wait: at - called})
	time.Sleep(rand.N(3 * time.Millisecond)) // work
	emit(event{what: "releasing", token: token, at: mono()})
	return true, l.Unlock()
}

// multiChild runs workers to lock triples of names. After the command "keep", a worker that
// acquires a multi-lock holds it until the process dies. It reports "event WHAT TOKEN TIME WAIT".
func multiChild(o childConfig, commands <-chan string) {
	locks := openInChild(o, dibs.Hooks{})
	emit("ready")
	if _, ok := <-commands; !ok {
		return
	}
	keep := make(chan struct{})
	report := func(s event) {
		emit("event %s %s %d %d", s.what, s.token, s.at, s.wait)
		if s.what != "acquired" {
			return
		}
		select {
		case <-keep:
			emit("event keeps %s %d 0", s.token, mono())
			select {}
		default:
		}
	}
	for i := range o.Workers {
		go func() {
			id := fmt.Sprintf("%s.%d", o.Name, i)
			emit("broken %v", lockTriples(locks, id, o.Names, func() bool { return true }, report))
		}()
	}
	if _, ok := <-commands; !ok {
		return
	}
	close(keep)
	<-commands
}

// workerProcess is a child with role multi.
type workerProcess struct {
	*child
	followed chan struct{} // closed when all its reports are in the log
	keeps    chan struct{} // receives when a worker holds until the process dies
}

// eventLog collects the events from all workers in all processes.
type eventLog struct {
	mu     sync.Mutex
	events []event
}

func (g *eventLog) add(s event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events = append(g.events, s)
}

// follow adds a process's reports, until it ends.
func (g *eventLog) follow(c *workerProcess) {
	defer close(c.followed)
	for line := range c.lines {
		f := strings.Fields(line)
		switch {
		case len(f) == 5 && f[0] == "event":
			var s event
			if _, err := fmt.Sscan(strings.Join(f[1:], " "), &s.what, &s.token, (*int64)(&s.at), (*int64)(&s.wait)); err != nil {
				c.t.Errorf("%q: %v", line, err)
			}
			g.add(s)
			if s.what == "keeps" {
				select {
				case c.keeps <- struct{}{}:
				default:
				}
			}
		case len(f) > 0 && f[0] == "broken":
			c.t.Errorf("a process: %s", line)
		}
	}
}

// snapshot is the names that each token holds, from a single inspection of all names.
type snapshot struct {
	at   time.Duration // when the inspection began
	held map[string][]string
}

func (b *fixture) snapshot(locks *dibs.Client, names []string) (snapshot, error) {
	s := snapshot{at: mono(), held: make(map[string][]string)}
	for _, name := range names {
		state, err := locks.Inspect(b.t.Context(), name)
		if err != nil {
			return s, err
		}
		for _, h := range state.Holders {
			s.held[string(h.Token)] = append(s.held[string(h.Token)], name)
		}
	}
	return s, nil
}

// Fifty workers in seven clients lock triples of ten names. The processes with three of the clients
// are killed.
func TestMultiMutexesUnderContention(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	single := func(*testing.T) []string {
		var names []string
		for i := range 10 {
			names = append(names, fmt.Sprintf("n%d", i))
		}
		return names
	}
	tagged := func(t *testing.T) []string {
		names := single(t)
		for i := range names {
			names[i] = "{tag}" + names[i]
		}
		return names
	}
	for _, where := range []struct {
		name    string
		cluster bool
		names   func(*testing.T) []string
		atomic  bool          // all names are acquired in one step
		free    time.Duration // limit for the time until all names are free after the kills
	}{
		{"one server", false, single, true, lease + 100*time.Millisecond},
		// A cluster does not know which clients are subscribed, so dead waiters are skipped only
		// when their queue entries expire. The waiters behind them retry after each half of a TTL.
		{"one slot", true, tagged, true, driver.WaiterTTL + lease/2 + 100*time.Millisecond},
		{"many slots", true, single, false, driver.WaiterTTL + lease + lease/2 + 100*time.Millisecond},
	} {
		t.Run(where.name, func(t *testing.T) {
			t.Parallel()
			var b *fixture
			if where.cluster {
				b = setUpCluster(t)
			} else {
				b = setUp(t)
			}
			b.multiMutexes(where.name, where.cluster, where.names(t), where.atomic, lease, where.free)
		})
	}
}

func (b *fixture) multiMutexes(where string, cluster bool, names []string, atomic bool, lease, free time.Duration) {
	const clients, children = 4, 3
	t := b.t
	newClient := func() *dibs.Client {
		if cluster {
			return b.newClusterClient(dibs.TTL(lease), patient())
		}
		return b.newClient(b.server.Addr(), dibs.TTL(lease), patient())
	}
	var g eventLog
	var processes [children]*workerProcess
	killed := make(map[string]time.Duration) // by process name
	started := 0
	startProcess := func(i int) {
		started++
		id := fmt.Sprintf("process%d", started)
		c := &workerProcess{
			child:    b.spawn(childConfig{Role: "multi", TTL: lease, Cluster: cluster, Name: id, Names: names, Workers: 6}),
			followed: make(chan struct{}), keeps: make(chan struct{}, 1),
		}
		c.name = id
		c.send("go")
		processes[i] = c
		go g.follow(c)
	}
	awaitDeath := func(c *workerProcess) {
		<-c.followed // its last reports count
		<-c.ended
		killed[c.name] = mono()
	}
	var locks [clients]*dibs.Client
	for i := range locks {
		locks[i] = newClient()
	}
	observer := newClient()
	for i := range processes {
		startProcess(i)
	}

	// This process's workers.
	lasts := pick(1500*time.Millisecond, 10*time.Second)
	b.begin()
	start := time.Now()
	goOn := func() bool { return time.Since(start) < lasts }
	var workers sync.WaitGroup
	for i := range 32 {
		workers.Go(func() {
			id := fmt.Sprintf("worker%d", i)
			err := lockTriples(locks[i%clients], id, names, goOn, g.add)
			switch {
			case err == nil:
			case errors.Is(err, dibs.ErrLost) && b.late() > lease/4:
				b.t.Logf("a worker lost its lease while the machine stood still: %v", err)
			default:
				b.t.Errorf("a worker: %v", err)
			}
		})
	}

	// The observer.
	var snapshots []snapshot
	stop, observed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(observed)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if s, err := b.snapshot(observer, names); err != nil {
				t.Errorf("inspect: %v", err)
			} else {
				snapshots = append(snapshots, s)
			}
		}
	}()

	// The kills: half of the processes are killed at any time, the others while a worker holds and
	// their other workers wait.
	kills := pick(3, 20)
	if cluster {
		kills = pick(1, 10) // each costs a waiter TTL
	}
	for n := range kills {
		due := time.NewTimer(time.Until(start.Add(lasts * time.Duration(n+1) / time.Duration(kills+1))))
		<-due.C
		i := rand.N(children)
		if n%2 == 0 {
			processes[i].send("keep")
			b.await("a worker of the process holds", processes[i].keeps)
		}
		processes[i].signal(syscall.SIGKILL)
		awaitDeath(processes[i])
		startProcess(i)
	}
	workers.Wait()
	busy := b.late()

	// At the end, all processes are killed at once while a worker in each holds.
	for _, c := range processes {
		c.send("keep")
	}
	select {
	case <-processes[0].keeps:
	case <-processes[1].keeps:
	case <-processes[2].keeps:
	case <-time.After(generous):
		t.Fatal("timed out waiting until a process holds")
	}
	b.begin()
	last := time.Now()
	for _, c := range processes {
		c.signal(syscall.SIGKILL)
	}
	for _, c := range processes {
		awaitDeath(c)
	}
	ctx := deadline(t, generous)
	l, err := observer.All(names).Lock(ctx)
	took := time.Since(last)
	if err != nil {
		b.skipIfStalled(lease / 4)
		t.Fatalf("all names at once, after the kills: %v", err)
	}
	b.within(where+": all names at once after the kills", took, free)
	close(stop)
	<-observed
	b.unlock(l)
	b.wantExpiry(lease)

	g.mu.Lock()
	defer g.mu.Unlock()
	b.checkOverlaps(where, &g, names, killed)
	b.checkAtomic(where, &g, snapshots, names, killed, atomic)
	t.Logf("FIGURE %s: %d processes killed, control up to %v", where, len(killed), round(busy))
}

// checkOverlaps checks that no name was held twice at a time, and that all workers were served.
func (b *fixture) checkOverlaps(where string, g *eventLog, names []string, killed map[string]time.Duration) {
	type span struct{ enter, exit time.Duration }
	holds, entered := make(map[string][]span), make(map[string]time.Duration)
	served := make(map[string]int)
	var waits []time.Duration
	cancelled := 0
	slices.SortStableFunc(g.events, func(x, y event) int { return cmp.Compare(x.at, y.at) })
	end := func(token string, at time.Duration) {
		for _, name := range namesOf(token, names) {
			holds[name] = append(holds[name], span{entered[token], at})
		}
		delete(entered, token)
	}
	for _, s := range g.events {
		id := s.token[:strings.LastIndex(s.token[:strings.LastIndex(s.token, ":")], ".")]
		served[id] += 0
		switch s.what {
		case "acquired":
			entered[s.token] = s.at
			waits = append(waits, s.wait)
			served[id]++
		case "releasing":
			end(s.token, s.at)
		case "cancelled":
			cancelled++
		}
	}
	for token := range entered { // held until the process was killed
		process, _, _ := strings.Cut(token, ".")
		at, ok := killed[process]
		if !ok {
			b.t.Errorf("%s was not released", token)
		}
		end(token, at)
	}
	overlaps, total := 0, 0
	for _, spans := range holds {
		slices.SortFunc(spans, func(x, y span) int { return cmp.Compare(x.enter, y.enter) })
		for i := 1; i < len(spans); i++ {
			if spans[i].enter < spans[i-1].exit {
				overlaps++
			}
		}
		total += len(spans)
	}
	least, most := int(^uint(0)>>1), 0
	for id, n := range served {
		process, _, _ := strings.Cut(id, ".")
		if _, dead := killed[process]; !dead {
			least, most = min(least, n), max(most, n)
		}
	}
	b.t.Logf("FIGURE %s: %d multi-locks held, %d cancelled, %d holds of a name, %d overlaps (limit 0); %d to %d per surviving worker; waits: mean %v, longest %v",
		where, len(waits), cancelled, total, overlaps, least, most, round(mean(waits)), round(longest(waits)))
	if overlaps != 0 || least < 1 || cancelled == 0 {
		b.t.Errorf("%d overlaps, at least %d multi-locks per worker, %d cancelled: want 0, 1 or more, 1 or more", overlaps, least, cancelled)
	}
}

// checkAtomic checks multi-locks whose process died while it held or waited. If all names are
// acquired in one step, no part may be held without the rest. A part must be seen in two successive
// snapshots to count, because a snapshot is not atomic itself. At least one held multi-lock must
// have been seen.
func (b *fixture) checkAtomic(where string, g *eventLog, snapshots []snapshot, names []string, killed map[string]time.Duration, atomic bool) {
	acquired, releasing := make(map[string]bool), make(map[string]bool) // each name separately
	kept := 0
	for _, s := range g.events { // in order
		switch s.what {
		case "acquired":
			acquired[s.token], releasing[s.token] = true, false // not cancelled after all
		case "keeps":
			kept++
		case "cancelling":
			releasing[s.token] = !acquired[s.token]
		case "releasing":
			releasing[s.token] = true
		}
	}
	dead, held, partial := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	before := make(map[string]bool)
	for _, s := range snapshots {
		now := make(map[string]bool)
		for token, have := range s.held {
			process, _, _ := strings.Cut(token, ".")
			at, ok := killed[process]
			if !ok || s.at < at || releasing[token] {
				continue
			}
			dead[token] = true
			if len(have) == len(namesOf(token, names)) {
				held[token] = true
				continue
			}
			now[token] = true
			if before[token] {
				partial[token] = true
			}
		}
		before = now
	}
	limit := "limit 0"
	if !atomic {
		limit = "no limit: acquired one by one"
	}
	b.t.Logf("FIGURE %s: %d multi-locks were held when their process was killed; %d snapshots show %d multi-locks of dead processes, %d of them held completely (limit: at least 1), %d in part (%s)",
		where, kept, len(snapshots), len(dead), len(held), len(partial), limit)
	if atomic && len(partial) > 0 {
		b.t.Errorf("held in part: %v", partial)
	}
	if len(held) == 0 {
		b.t.Error("no snapshot shows a multi-lock of a dead process, so nothing was checked")
	}
}
