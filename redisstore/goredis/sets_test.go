//go:build linux

package goredis_test

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
)

// A step is what a worker reports of one set, by its token.
type step struct {
	what  string // in, out, stay: it never will be out, quit: it gives up now, gone: it has
	token string // ends with the numbers of its names: "…:1-4-7"
	at    time.Duration
	wait  time.Duration // of in
}

// namesOf returns the names that a token is for.
func namesOf(token string, names []string) []string {
	var set []string
	numbers := token[strings.LastIndex(token, ":")+1:]
	for number := range strings.SplitSeq(numbers, "-") {
		var n int
		if _, err := fmt.Sscan(number, &n); err == nil && n < len(names) {
			set = append(set, names[n])
		}
	}
	return set
}

// together takes random triples of names until it is told to stop, and returns the
// first error that it should not have seen.
func together(locks *dibs.Client, who string, names []string, goOn func() bool, tell func(step)) error {
	for n, served := 0, false; goOn() || !served; n++ {
		of := rand.Perm(len(names))[:3]
		token := fmt.Sprintf("%s.%d:%d-%d-%d", who, n, of[0], of[1], of[2])
		held, err := triple(locks.All(names[of[0]], names[of[1]], names[of[2]]), token, tell)
		if err != nil {
			return fmt.Errorf("%s: %w", token, err)
		}
		served = served || held
	}
	return nil
}

// triple holds a set once. One time in five it gives up, before or while it holds.
func triple(set *dibs.Set, token string, tell func(step)) (held bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*generous) // each process that dies may cost it seconds
	defer cancel()
	if rand.N(5) == 0 {
		quit := time.AfterFunc(rand.N(20*time.Millisecond), func() {
			tell(step{what: "quit", token: token, at: mono()})
			cancel()
		})
		defer quit.Stop()
	}
	called := mono()
	l, err := set.Lock(ctx, dibs.Token(token))
	at := mono()
	if errors.Is(err, context.Canceled) {
		tell(step{what: "gone", token: token, at: at})
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("after %v: %w", at-called, err)
	}
	tell(step{what: "in", token: token, at: at, wait: at - called})
	time.Sleep(rand.N(3 * time.Millisecond)) // work
	tell(step{what: "out", token: token, at: mono()})
	return true, l.Unlock()
}

// crew is a child whose workers take sets of names. Once it is told to stay, whoever
// gets in holds until the process dies.
func crew(o orders, commands <-chan string) {
	locks := enlist(o, dibs.Hooks{})
	say("ready")
	if _, ok := <-commands; !ok {
		return
	}
	stay := make(chan struct{})
	tell := func(s step) {
		say("step %s %s %d %d", s.what, s.token, s.at, s.wait)
		if s.what != "in" {
			return
		}
		select {
		case <-stay:
			say("step stay %s %d 0", s.token, mono())
			select {}
		default:
		}
	}
	for i := range o.Workers {
		go func() {
			who := fmt.Sprintf("%s.%d", o.Who, i)
			say("broken %v", together(locks, who, o.Names, func() bool { return true }, tell))
		}()
	}
	if _, ok := <-commands; !ok {
		return
	}
	close(stay)
	<-commands
}

// A gang is a crew, and how it is known to this process.
type gang struct {
	*child
	followed chan struct{} // closed when all that it said is known
	stays    chan struct{} // one of its sets is held until it dies
}

// A log collects the steps of all workers of all processes.
type log struct {
	mu    sync.Mutex
	steps []step
}

func (g *log) add(s step) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.steps = append(g.steps, s)
}

// follow adds what a crew reports, until it is gone.
func (g *log) follow(c *gang) {
	defer close(c.followed)
	for line := range c.lines {
		f := strings.Fields(line)
		switch {
		case len(f) == 5 && f[0] == "step":
			var s step
			if _, err := fmt.Sscan(strings.Join(f[1:], " "), &s.what, &s.token, (*int64)(&s.at), (*int64)(&s.wait)); err != nil {
				c.t.Errorf("%q: %v", line, err)
			}
			g.add(s)
			if s.what == "stay" {
				select {
				case c.stays <- struct{}{}:
				default:
				}
			}
		case len(f) > 0 && f[0] == "broken":
			c.t.Errorf("a crew: %s", line)
		}
	}
}

// A sight is what one look at all names saw: who holds which.
type sight struct {
	at   time.Duration // when it began
	held map[string][]string
}

func (b *bed) sight(locks *dibs.Client, names []string) (sight, error) {
	s := sight{at: mono(), held: make(map[string][]string)}
	for _, name := range names {
		state, err := locks.Inspect(b.t.Context(), name)
		if err != nil {
			return s, err
		}
		for _, h := range state.Holders {
			s.held[h.Token] = append(s.held[h.Token], name)
		}
	}
	return s, nil
}

// Fifty workers in seven clients, of which three are processes that are killed, take
// triples of ten names.
func TestSetsInACrowd(t *testing.T) {
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
			names[i] = "{set}" + names[i]
		}
		return names
	}
	for _, where := range []struct {
		name    string
		cluster bool
		names   func(*testing.T) []string
		whole   bool          // a set is taken in one step
		free    time.Duration // after all have been killed
	}{
		{"one server", false, single, true, lease + 100*time.Millisecond},
		// A cluster cannot tell who listens: the dead in line are passed over when their
		// places end, and who waits behind them looks again each half of a lease.
		{"one slot", true, tagged, true, dibs.ClaimTTL + lease/2 + 100*time.Millisecond},
		{"many slots", true, single, false, dibs.ClaimTTL + lease + lease/2 + 100*time.Millisecond},
	} {
		t.Run(where.name, func(t *testing.T) {
			t.Parallel()
			var b *bed
			if where.cluster {
				b = setUpCluster(t)
			} else {
				b = setUp(t)
			}
			b.sets(where.name, where.cluster, where.names(t), where.whole, lease, where.free)
		})
	}
}

func (b *bed) sets(where string, cluster bool, names []string, whole bool, lease, free time.Duration) {
	const clients, children = 4, 3
	t := b.t
	join := func() *dibs.Client {
		if cluster {
			return b.joinCluster(dibs.TTL(lease), patient())
		}
		return b.join(b.server.Addr(), dibs.TTL(lease), patient())
	}
	var g log
	var crews [children]*gang
	killed := make(map[string]time.Duration) // by name of the crew
	hired := 0
	hire := func(i int) {
		hired++
		who := fmt.Sprintf("crew%d", hired)
		c := &gang{
			child:    b.spawn(orders{Role: "crew", TTL: lease, Cluster: cluster, Who: who, Names: names, Workers: 6}),
			followed: make(chan struct{}), stays: make(chan struct{}, 1),
		}
		c.who = who
		c.tell("go")
		crews[i] = c
		go g.follow(c)
	}
	buried := func(c *gang) {
		<-c.followed // what it said counts
		<-c.gone
		killed[c.who] = mono()
	}
	var locks [clients]*dibs.Client
	for i := range locks {
		locks[i] = join()
	}
	observer := join()
	for i := range crews {
		hire(i)
	}

	// The workers of this process.
	lasts := pick(1500*time.Millisecond, 10*time.Second)
	b.begin()
	start := time.Now()
	goOn := func() bool { return time.Since(start) < lasts }
	var workers sync.WaitGroup
	for i := range 32 {
		workers.Go(func() {
			who := fmt.Sprintf("worker%d", i)
			err := together(locks[i%clients], who, names, goOn, g.add)
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
	var sights []sight
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
			if s, err := b.sight(observer, names); err != nil {
				t.Errorf("inspect: %v", err)
			} else {
				sights = append(sights, s)
			}
		}
	}()

	// The nemesis: every other one dies at some moment, and the rest while one of its
	// workers holds. The others of its workers wait.
	kills := pick(3, 20)
	if cluster {
		kills = pick(1, 10) // each costs a claim TTL
	}
	for n := range kills {
		due := time.NewTimer(time.Until(start.Add(lasts * time.Duration(n+1) / time.Duration(kills+1))))
		<-due.C
		i := rand.N(children)
		if n%2 == 0 {
			crews[i].tell("stay")
			b.happens("a crew holds", crews[i].stays)
		}
		crews[i].signal(syscall.SIGKILL)
		buried(crews[i])
		hire(i)
	}
	workers.Wait()
	busy := b.late()

	// At the end, all at once, and one of them holds.
	for _, c := range crews {
		c.tell("stay")
	}
	select {
	case <-crews[0].stays:
	case <-crews[1].stays:
	case <-crews[2].stays:
	case <-time.After(generous):
		t.Fatal("no crew holds")
	}
	b.begin()
	last := time.Now()
	for _, c := range crews {
		c.signal(syscall.SIGKILL)
	}
	for _, c := range crews {
		buried(c)
	}
	ctx := deadline(t, generous)
	l, err := observer.All(names...).Lock(ctx)
	took := time.Since(last)
	if err != nil {
		b.standstill(lease / 4)
		t.Fatalf("all names at once, after the kills: %v", err)
	}
	b.within(where+": all names at once after the kills", took, free)
	close(stop)
	<-observed
	b.unlock(l)
	b.ends(lease)

	g.mu.Lock()
	defer g.mu.Unlock()
	b.crowd(where, &g, names, killed)
	b.whole(where, &g, sights, names, killed, whole)
	t.Logf("FIGURE %s: %d processes killed, control up to %v", where, len(killed), round(busy))
}

// crowd checks that no two held one name at a time, and that all were served.
func (b *bed) crowd(where string, g *log, names []string, killed map[string]time.Duration) {
	type span struct{ enter, exit time.Duration }
	visits, entered := make(map[string][]span), make(map[string]time.Duration)
	served := make(map[string]int)
	var waits []time.Duration
	gone := 0
	slices.SortStableFunc(g.steps, func(x, y step) int { return cmp.Compare(x.at, y.at) })
	leave := func(token string, at time.Duration) {
		for _, name := range namesOf(token, names) {
			visits[name] = append(visits[name], span{entered[token], at})
		}
		delete(entered, token)
	}
	for _, s := range g.steps {
		who := s.token[:strings.LastIndex(s.token[:strings.LastIndex(s.token, ":")], ".")]
		served[who] += 0
		switch s.what {
		case "in":
			entered[s.token] = s.at
			waits = append(waits, s.wait)
			served[who]++
		case "out":
			leave(s.token, s.at)
		case "gone":
			gone++
		}
	}
	for token := range entered { // until it was killed
		crew, _, _ := strings.Cut(token, ".")
		at, ok := killed[crew]
		if !ok {
			b.t.Errorf("%s has not left", token)
		}
		leave(token, at)
	}
	overlaps, stays := 0, 0
	for _, spans := range visits {
		slices.SortFunc(spans, func(x, y span) int { return cmp.Compare(x.enter, y.enter) })
		for i := 1; i < len(spans); i++ {
			if spans[i].enter < spans[i-1].exit {
				overlaps++
			}
		}
		stays += len(spans)
	}
	least, most := int(^uint(0)>>1), 0
	for who, n := range served {
		crew, _, _ := strings.Cut(who, ".")
		if _, dead := killed[crew]; !dead {
			least, most = min(least, n), max(most, n)
		}
	}
	b.t.Logf("FIGURE %s: %d sets held, %d gave up, %d stays in a name, %d overlaps (bar 0); each living worker %d to %d times; waits: mean %v, longest %v",
		where, len(waits), gone, stays, overlaps, least, most, round(mean(waits)), round(longest(waits)))
	if overlaps != 0 || least < 1 || gone == 0 {
		b.t.Errorf("%d overlaps, %d sets of the one that had least, %d gave up", overlaps, least, gone)
	}
}

// whole checks that of a set whose process died while it held, or waited, no part was
// held without the rest, if a set is taken in one step: at two looks one after the
// other, since a look takes its time. It wants to have seen some that were held.
func (b *bed) whole(where string, g *log, sights []sight, names []string, killed map[string]time.Duration, whole bool) {
	in, leaving := make(map[string]bool), make(map[string]bool) // giving its names back, one by one
	stays := 0
	for _, s := range g.steps { // in order
		switch s.what {
		case "in":
			in[s.token], leaving[s.token] = true, false // it has not quit
		case "stay":
			stays++
		case "quit":
			leaving[s.token] = !in[s.token]
		case "out":
			leaving[s.token] = true
		}
	}
	dead, held, torn := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	before := make(map[string]bool)
	for _, s := range sights {
		now := make(map[string]bool)
		for token, have := range s.held {
			crew, _, _ := strings.Cut(token, ".")
			at, ok := killed[crew]
			if !ok || s.at < at || leaving[token] {
				continue
			}
			dead[token] = true
			if len(have) == len(namesOf(token, names)) {
				held[token] = true
				continue
			}
			now[token] = true
			if before[token] {
				torn[token] = true
			}
		}
		before = now
	}
	bar := "bar 0"
	if !whole {
		bar = "no bar: taken one by one"
	}
	b.t.Logf("FIGURE %s: %d sets were held when their process was killed; %d looks at all names saw %d sets of the dead, %d of them held as a whole (bar 1 at least), %d in part (%s)",
		where, stays, len(sights), len(dead), len(held), len(torn), bar)
	if whole && len(torn) > 0 {
		b.t.Errorf("held in part: %v", torn)
	}
	if len(held) == 0 {
		b.t.Error("no set was seen that the dead held: nothing was checked")
	}
}
