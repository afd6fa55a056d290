package drill

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/history"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/quorum"
)

// independent are the servers of a quorum, each behind a proxy for each client.
type independent struct {
	t       *testing.T
	o       Opener
	servers []*redistest.Server
	config  quorum.Config
}

// longestLease is short: a server that was restarted does not vote for so long.
const longestLease = 2 * time.Second

func (o Opener) independent(t *testing.T, n int) *independent {
	t.Helper()
	q := &independent{t: t, o: o, config: quorum.Config{Longest: longestLease}}
	for range n {
		q.servers = append(q.servers, redistest.Start(t))
	}
	return q
}

// join returns a store of its own, and its ways to the servers.
func (q *independent) join() (*quorum.Store, []*redistest.Proxy) {
	q.t.Helper()
	var nodes []dibs.Store
	var ways []*redistest.Proxy
	for _, s := range q.servers {
		way := redistest.NewProxy(q.t, s.Addr())
		ways = append(ways, way)
		nodes = append(nodes, q.o.Single(q.t, way.Addr()))
	}
	store, err := q.config.New(nodes...)
	if err != nil {
		q.t.Fatal(err)
	}
	return store, ways
}

// client returns a client of all servers once they vote.
func (q *independent) client(options ...dibs.Option) (*dibs.Client, []*redistest.Proxy) {
	q.t.Helper()
	store, ways := q.join()
	c := dibs.New(store, append([]dibs.Option{dibs.TTL(longestLease)}, options...)...)
	q.t.Cleanup(func() { c.Close() })
	q.ready(c)
	return c, ways
}

// ready waits until the servers vote: new ones have to remember a longest lease first.
func (q *independent) ready(c *dibs.Client) {
	q.t.Helper()
	Eventually(q.t, "the servers vote", func() bool {
		l, err := c.Mutex("ready").TryLock(q.t.Context())
		if err != nil {
			return false
		}
		Unlock(q.t, l)
		return true
	})
}

// QuorumMinority checks that nobody notices when two of five servers are gone, or slow;
// and that all is told when a third one dies.
func (o Opener) QuorumMinority(t *testing.T) {
	q := o.independent(t, 5)
	c, ways := q.client()
	well := *q // the control: a quorum of the three to which nothing happens, yet
	well.servers = q.servers[2:]
	control, _ := well.client()
	// rates returns how long a pair takes, the medians of many: here, and at the same
	// time where all is well.
	rates := func() (here, there time.Duration) {
		t.Helper()
		var took, ideal []time.Duration
		for range 100 {
			took = append(took, pair(t, c, "n"))
			ideal = append(ideal, pair(t, control, "control"))
		}
		return median(took), median(ideal)
	}
	compare := func(what string, here, there time.Duration) {
		t.Helper()
		t.Logf("FIGURE a pair takes %v %s, and %v where all is well", here, what, there)
		if here > 5*there+5*time.Millisecond {
			t.Errorf("a pair takes %v %s, want at most 5 times %v", here, what, there)
		}
	}
	all, ideal := rates()
	compare("with all five", all, ideal)
	ways[4].Delay(max(250*time.Millisecond, 10*ideal)) // so that who waits for it is seen to
	slow, ideal := rates()
	compare("with one that is slow", slow, ideal)
	ways[4].Delay(0)
	held, beside := Lock(t, c, "held", dibs.Timeout(Generous)), Lock(t, control, "beside", dibs.Timeout(Generous))
	q.servers[0].Kill()
	q.servers[1].Kill()
	dead, ideal := rates()
	compare("with two that are dead", dead, ideal)
	for quiet := time.After(2 * longestLease); quiet != nil; {
		select {
		case <-quiet:
			quiet = nil
		case <-beside.Context().Done(): // a machine that stands still for so long tells nothing
			t.Logf("where all is well a lease ended, too: %v", beside.Err())
			held, beside = Lock(t, c, "held"), Lock(t, control, "beside")
			quiet = time.After(2 * longestLease)
		case <-held.Context().Done():
			t.Fatalf("the lease ended: %v", held.Err())
		}
	}
	q.servers[2].Kill()
	var err error
	machine := WatchMachine(t.Context(), q.servers[3].Addr())
	machine.Measure(t, "most of them are dead: told after", 1500*time.Millisecond, func() time.Duration {
		start := time.Now()
		_, err = c.Mutex("m").TryLock(t.Context())
		return time.Since(start)
	})
	if !errors.Is(err, dibs.ErrUnavailable) || strings.Count(err.Error(), "node ") < 3 {
		t.Errorf("error %v, want that it is unavailable, and why each node is", err)
	}
	select {
	case <-held.Context().Done():
	case <-time.After(Generous):
		t.Fatal("the lease goes on without most of the servers")
	}
	if !errors.Is(held.Err(), dibs.ErrLost) {
		t.Errorf("lease: %v, want it lost", held.Err())
	}
}

// pair returns how long it takes to lock and unlock.
func pair(t *testing.T, c *dibs.Client, name string) time.Duration {
	t.Helper()
	start := time.Now()
	Unlock(t, Lock(t, c, name, dibs.Timeout(Generous)))
	return time.Since(start)
}

// QuorumRestart checks that a server that comes back without its memory, or with it,
// does not vote until no lease can be left that it may have forgotten.
func (o Opener) QuorumRestart(t *testing.T) {
	q := o.independent(t, 3)
	c, _ := q.client()
	const tries = 3 // a busy machine may take for the question what they abstain for
	for try := 1; ; try++ {
		start := time.Now()
		for _, s := range q.servers[1:] { // most of them
			s.Kill()
			if err := s.Restart(); err != nil {
				t.Fatal(err)
			}
		}
		restarted := time.Now()
		err := q.abstained(c, start.Add(longestLease))
		q.ready(c)
		var young *dibs.RestartedError
		switch {
		case !errors.As(err, &young) && try < tries:
			continue
		case young == nil || young.Node == "" || young.Left <= 0 || young.Left > longestLease:
			t.Fatalf("error %v, want that servers were restarted", err)
		}
		if took := time.Since(start); took < longestLease {
			t.Errorf("they vote after %v, which is less than the longest lease", took)
		}
		t.Logf("FIGURE they vote %v after their restart, the longest lease being %v", time.Since(restarted), longestLease)
		return
	}
}

// abstained returns what a question is answered to which servers abstain, or the last
// answer until then: the client connects again first.
func (q *independent) abstained(c *dibs.Client, until time.Time) (err error) {
	for time.Now().Before(until) {
		var l *dibs.Lease
		if l, err = c.Mutex("n").TryLock(q.t.Context()); err == nil {
			Unlock(q.t, l)
		}
		if errors.As(err, new(*dibs.RestartedError)) {
			break
		}
		time.Sleep(time.Millisecond) // polls
	}
	return err
}

// QuorumSplit cuts ways between clients and servers under load, and kills servers now and
// then. Nobody ever holds beside another, fences grow, and there is always somebody who
// enters: while ways are cut, and after it.
func (o Opener) QuorumSplit(t *testing.T) {
	rounds := 20
	if redistest.Long() {
		rounds = 200
	}
	q := o.independent(t, 5)
	q.client()
	storm := history.Storm{
		Workers: 4, Pace: 2 * time.Millisecond, Names: []string{"a", "b", "c"}, Hold: work,
		Options: []dibs.Option{dibs.TTL(longestLease), dibs.Timeout(patient)},
	}
	var stores []dibs.Store
	var ways [][]*redistest.Proxy
	for range 3 {
		store, w := q.join()
		stores, ways = append(stores, store), append(ways, w)
	}
	w := storm.Start(stores...)
	chance := rand.New(rand.NewPCG(1, 2))
	begin := w.Now()
	goesOn := func(when string) {
		t.Helper()
		before := w.Entered()
		Eventually(t, "somebody enters "+when, func() bool { return w.Entered() > before })
	}
	for round := range rounds {
		ended := time.After(time.Duration(chance.IntN(300)) * time.Millisecond) // of work on what is left
		if at := chance.IntN(len(q.servers)); chance.IntN(8) == 0 {
			q.servers[at].Kill()
			<-ended
			if err := q.servers[at].Restart(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var cut []*redistest.Proxy
		for _, of := range ways { // each client has a minority of its own that it cannot reach
			shift := chance.IntN(len(q.servers))
			cut = append(cut, of[shift], of[(shift+1)%len(of)])
		}
		for _, way := range cut {
			[]func(){way.Freeze, way.Drop, func() { way.Refuse(true); way.Reset() }}[chance.IntN(3)]()
		}
		<-ended
		if round%4 == 0 { // it takes the time of an operation, and that of a young server
			goesOn("while ways are cut")
		}
		for _, way := range cut {
			way.Heal()
		}
		goesOn("when they are not")
	}
	over := w.Now()
	v := judge(w.Stop(), over)
	t.Logf("FIGURE %d cuts and deaths: %d entries, %.0f a second, %d double holds, %d leases lost, %d fences went back, %d errors",
		rounds, len(v.entries), v.rate(begin, over), len(v.doubles), v.lost, len(v.fences), len(v.errors))
	v.wantNoDoubles(t)
	v.wantFences(t)
	v.wantNoErrors(t)
}
