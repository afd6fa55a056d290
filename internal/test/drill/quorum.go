package drill

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/history"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/quorum"
)

// quorumServers are a quorum's servers. Each client uses its own proxy to each server.
type quorumServers struct {
	t       *testing.T
	o       Opener
	servers []*redistest.Server
	config  quorum.Config
}

// longestLease is short, because a restarted server does not vote for this long.
const longestLease = 2 * time.Second

func (o Opener) startQuorum(t *testing.T, n int) *quorumServers {
	t.Helper()
	q := &quorumServers{t: t, o: o, config: quorum.Config{Longest: longestLease}}
	for range n {
		q.servers = append(q.servers, redistest.Start(t))
	}
	return q
}

// newStore returns a store with its own proxies to the servers.
func (q *quorumServers) newStore() (*quorum.Store, []*redistest.Proxy) {
	q.t.Helper()
	var nodes []driver.Voter
	var proxies []*redistest.Proxy
	for _, s := range q.servers {
		proxy := redistest.NewProxy(q.t, s.Addr())
		proxies = append(proxies, proxy)
		nodes = append(nodes, q.o.Single(q.t, proxy.Addr()))
	}
	store, err := q.config.New(nodes...)
	if err != nil {
		q.t.Fatal(err)
	}
	return store, proxies
}

// client returns a client for all servers when they vote.
func (q *quorumServers) client(options ...dibs.Option) (*dibs.Client, []*redistest.Proxy) {
	q.t.Helper()
	store, proxies := q.newStore()
	c := dibs.New(store, append([]dibs.Option{dibs.TTL(longestLease)}, options...)...)
	q.t.Cleanup(func() { c.Close() })
	q.waitReady(c)
	return c, proxies
}

// waitReady waits until the servers vote. A new server does not vote before the longest lease has
// passed.
func (q *quorumServers) waitReady(c *dibs.Client) {
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

// QuorumMinority checks that losing or slowing two of five servers has no effect, and a holder is
// notified when a third server dies.
func (o Opener) QuorumMinority(t *testing.T) {
	q := o.startQuorum(t, 5)
	c, proxies := q.client()
	well := *q // the control: a quorum over the three servers still running
	well.servers = q.servers[2:]
	control, _ := well.client()
	// rates returns the median time for a lock and unlock, with all servers and, at the same time,
	// with the control.
	rates := func() (here, there time.Duration) {
		t.Helper()
		var took, ideal []time.Duration
		for range 100 {
			took = append(took, measurePair(t, c, "n"))
			ideal = append(ideal, measurePair(t, control, "control"))
		}
		return median(took), median(ideal)
	}
	compare := func(what string, here, there time.Duration) {
		t.Helper()
		t.Logf("FIGURE a pair takes %v %s, and %v in the control", here, what, there)
		if here > 5*there+5*time.Millisecond {
			t.Errorf("a pair takes %v %s, want at most 5 times %v", here, what, there)
		}
	}
	all, ideal := rates()
	compare("with all five", all, ideal)
	proxies[4].Delay(max(250*time.Millisecond, 10*ideal)) // so waiting for it is noticeable
	slow, ideal := rates()
	compare("with one that is slow", slow, ideal)
	proxies[4].Delay(0)
	held, controlLease := Lock(t, c, "held", dibs.Timeout(Generous)), Lock(t, control, "control lease", dibs.Timeout(Generous))
	q.servers[0].Kill()
	q.servers[1].Kill()
	dead, ideal := rates()
	compare("with two that are dead", dead, ideal)
	for quiet := time.After(2 * longestLease); quiet != nil; {
		select {
		case <-quiet:
			quiet = nil
		case <-controlLease.Context().Done(): // the machine was suspended: the result is not meaningful
			t.Logf("a lease of the control ended, too: %v", controlLease.Err())
			held, controlLease = Lock(t, c, "held"), Lock(t, control, "control lease")
			quiet = time.After(2 * longestLease)
		case <-held.Context().Done():
			t.Fatalf("the lease ended: %v", held.Err())
		}
	}
	q.servers[2].Kill()
	var err error
	machine := WatchMachine(t.Context(), q.servers[3].Addr())
	machine.Measure(t, "error with a dead majority", 1500*time.Millisecond, func() time.Duration {
		start := time.Now()
		_, err = c.Mutex("m").TryLock(t.Context())
		return time.Since(start)
	})
	if !errors.Is(err, dibs.ErrUnavailable) || strings.Count(err.Error(), "node ") < 3 {
		t.Errorf("error %v, want ErrUnavailable with the error of each node", err)
	}
	select {
	case <-held.Context().Done():
	case <-time.After(Generous):
		t.Fatal("the lease did not end without a majority")
	}
	if !errors.Is(held.Err(), dibs.ErrLost) {
		t.Errorf("lease: %v, want it lost", held.Err())
	}
}

// measurePair returns the time for a lock and unlock.
func measurePair(t *testing.T, c *dibs.Client, name string) time.Duration {
	t.Helper()
	start := time.Now()
	Unlock(t, Lock(t, c, name, dibs.Timeout(Generous)))
	return time.Since(start)
}

// QuorumRestart checks that a restarted server, with or without its data, does not vote until every
// possibly lost lease ended.
func (o Opener) QuorumRestart(t *testing.T) {
	q := o.startQuorum(t, 3)
	c, _ := q.client()
	const tries = 3 // a busy machine may take as long for a request as the servers abstain
	for try := 1; ; try++ {
		start := time.Now()
		for _, s := range q.servers[1:] { // a majority
			s.Kill()
			if err := s.Restart(); err != nil {
				t.Fatal(err)
			}
		}
		restarted := time.Now()
		err := q.recoveringError(c, start.Add(longestLease))
		q.waitReady(c)
		var young *driver.RecoveringError
		switch {
		case !errors.As(err, &young) && try < tries:
			continue
		case young == nil || young.Node == "" || young.Remaining <= 0 || young.Remaining > longestLease:
			t.Fatalf("error %v, want RecoveringError", err)
		}
		if took := time.Since(start); took < longestLease {
			t.Errorf("the servers vote after %v, before the longest lease has passed", took)
		}
		t.Logf("FIGURE the servers vote %v after their restart; longest lease %v", time.Since(restarted), longestLease)
		return
	}
}

// recoveringError returns a request's error while servers abstain, or the last result before until.
// The client reconnects first.
func (q *quorumServers) recoveringError(c *dibs.Client, until time.Time) (err error) {
	for time.Now().Before(until) {
		var l *dibs.Lease
		if l, err = c.Mutex("n").TryLock(q.t.Context()); err == nil {
			Unlock(q.t, l)
		}
		if errors.As(err, new(*driver.RecoveringError)) {
			break
		}
		time.Sleep(time.Millisecond) // polls
	}
	return err
}

// QuorumSplit cuts connections between clients and servers under load, and kills servers
// now and then. No two leases conflict, fences grow, and locks are acquired while
// connections are cut, and afterwards.
func (o Opener) QuorumSplit(t *testing.T) {
	rounds := 20
	if redistest.Long() {
		rounds = 200
	}
	q := o.startQuorum(t, 5)
	q.client()
	load := history.Workload{
		Workers: 4, Interval: 2 * time.Millisecond, Names: []string{"a", "b", "c"}, Hold: shortWork,
		Options: []dibs.Option{dibs.TTL(longestLease), dibs.Timeout(longTimeout)},
	}
	var stores []driver.Store
	var proxies [][]*redistest.Proxy
	for range 3 {
		store, w := q.newStore()
		stores, proxies = append(stores, store), append(proxies, w)
	}
	w := load.Start(stores...)
	chance := rand.New(rand.NewPCG(1, 2))
	begin := w.Now()
	goesOn := func(when string) {
		t.Helper()
		before := w.Acquired()
		Eventually(t, "a lock is acquired "+when, func() bool { return w.Acquired() > before })
	}
	for round := range rounds {
		ended := time.After(time.Duration(chance.IntN(300)) * time.Millisecond) // work with the remaining connections
		if at := chance.IntN(len(q.servers)); chance.IntN(8) == 0 {
			q.servers[at].Kill()
			<-ended
			if err := q.servers[at].Restart(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var cut []*redistest.Proxy
		for _, of := range proxies { // each client loses its own minority
			shift := chance.IntN(len(q.servers))
			cut = append(cut, of[shift], of[(shift+1)%len(of)])
		}
		for _, proxy := range cut {
			[]func(){proxy.Freeze, proxy.Drop, func() { proxy.Refuse(true); proxy.Reset() }}[chance.IntN(3)]()
		}
		<-ended
		if round%4 == 0 { // it takes as long as an operation and a server's recovery window
			goesOn("while connections are cut")
		}
		for _, proxy := range cut {
			proxy.Heal()
		}
		goesOn("when they are restored")
	}
	over := w.Now()
	v := evaluate(w.Stop(), over)
	t.Logf("FIGURE %d cuts and failures: %d locks, %.0f per second, %d conflicts, %d leases lost, %d fences decreased, %d errors",
		rounds, len(v.entries), v.rate(begin, over), len(v.conflicts), v.lost, len(v.fences), len(v.errors))
	v.wantNoConflicts(t)
	v.wantFences(t)
	v.wantNoErrors(t)
}
