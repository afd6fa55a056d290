package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/quorum"
	"github.com/dibslock/dibs/storetest"
)

const ttl = 10 * time.Second

func memories(n int) (nodes []driver.Store, stores []*memstore.Store) {
	for range n {
		m := memstore.New()
		nodes, stores = append(nodes, m), append(stores, m)
	}
	return nodes, stores
}

func newQuorum(t *testing.T, c quorum.Config, nodes ...driver.Store) *quorum.Store {
	t.Helper()
	s, err := c.New(nodes...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	for _, n := range []int{1, 3, 4, 5} {
		for _, c := range storetest.Cases() {
			t.Run(fmt.Sprint(n, "/", c.Name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					nodes, _ := memories(n)
					c.Run(t, newQuorum(t, quorum.Config{Longest: driver.MaxTTL}, nodes...))
				})
			})
		}
	}
}

// A node is a store that may be mute, dead or slow.
type node struct {
	driver.Store
	mu   sync.Mutex
	dead error
	mute bool
	slow time.Duration // so long is each message under way

	// fault, if set, is called first. If it returns an error, that is the answer, and the
	// message arrives when it calls deliver, or never.
	fault func(verb string, deliver func()) error
}

func (n *node) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func (n *node) wait(ctx context.Context) error {
	n.mu.Lock()
	dead, mute, delay := n.dead, n.mute, n.slow
	n.mu.Unlock()
	if dead != nil {
		return &dibs.UnavailableError{Op: "test", Cause: dead}
	}
	if mute {
		delay = time.Hour
	}
	if delay == 0 { // a timer that is due at once crashes the race detector now and then: go.dev/issue/78156
		return gone(ctx)
	}
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return gone(ctx)
	}
}

func gone(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return &dibs.UnavailableError{Op: "test", Cause: context.Cause(ctx)}
}

// send has a question travel to the node, and the answer back.
func send[T any](ctx context.Context, n *node, verb string, serve func(context.Context) (T, error)) (T, error) {
	var none T
	n.mu.Lock()
	fault := n.fault
	n.mu.Unlock()
	if fault != nil {
		if err := fault(verb, func() { _, _ = serve(context.WithoutCancel(ctx)) }); err != nil {
			return none, err
		}
	}
	if err := n.wait(ctx); err != nil {
		return none, err
	}
	value, err := serve(ctx)
	if err := n.wait(ctx); err != nil {
		return none, err
	}
	return value, err
}

func (n *node) Acquire(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
	return send(ctx, n, "acquire", func(ctx context.Context) (driver.AcquireReply, error) { return n.Store.Acquire(ctx, c) })
}

func (n *node) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	return send(ctx, n, "release", func(ctx context.Context) (bool, error) { return n.Store.Release(ctx, r) })
}

func (n *node) Cancel(ctx context.Context, c driver.AcquireRequest) error {
	_, err := send(ctx, n, "abandon", func(ctx context.Context) (bool, error) { return true, n.Store.Cancel(ctx, c) })
	return err
}

func (n *node) Resize(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
	return send(ctx, n, "reweigh", func(ctx context.Context) (driver.AcquireReply, error) { return n.Store.Resize(ctx, c) })
}

func (n *node) Extend(ctx context.Context, holds []driver.ExtendRequest) []error {
	errs, err := send(ctx, n, "extend", func(ctx context.Context) ([]error, error) { return n.Store.Extend(ctx, holds), nil })
	if err != nil {
		errs = make([]error, len(holds))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

func (n *node) Watch(ctx context.Context, client string, on func(driver.Event)) error {
	return n.Store.Watch(ctx, client, func(e driver.Event) {
		n.mu.Lock()
		defer n.mu.Unlock()
		time.AfterFunc(n.slow, func() {
			if ctx.Err() == nil {
				on(e)
			}
		})
	})
}

// rig is five nodes, and a client of their quorum.
func rig(t *testing.T, c quorum.Config) (nodes []*node, stores []*memstore.Store, locks *dibs.Client) {
	t.Helper()
	_, stores = memories(5)
	nodes, locks = join(t, c, stores...)
	return nodes, stores, locks
}

// join returns a client of the quorum of some stores, and its own way to each of them.
func join(t *testing.T, c quorum.Config, stores ...*memstore.Store) (nodes []*node, locks *dibs.Client) {
	t.Helper()
	var all []driver.Store
	for _, s := range stores {
		n := &node{Store: s}
		nodes, all = append(nodes, n), append(all, n)
	}
	locks = dibs.New(newQuorum(t, c, all...), dibs.TTL(ttl))
	t.Cleanup(func() {
		locks.Close()
		time.Sleep(2 * quorum.Longest) // what goes on in the background ends
	})
	return nodes, locks
}

// nothingLeft checks that all nodes have forgotten all about a name.
func nothingLeft(t *testing.T, stores []*memstore.Store, name string) {
	t.Helper()
	for i, s := range stores {
		if state, err := s.Inspect(t.Context(), name); err != nil || state.Holding+state.Waiting > 0 {
			t.Errorf("node %d: %+v, error %v, want nothing left", i, state, err)
		}
	}
}

var illnesses = map[string]func(*node){
	"dead": func(n *node) { n.dead = errors.New("refused") },
	"mute": func(n *node) { n.mute = true },
	"slow": func(n *node) { n.slow = 500 * time.Millisecond },
}

// Nobody notices that two of five are ill.
func TestMinority(t *testing.T) {
	for name, fall := range illnesses {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := rig(t, quorum.Config{})
				for _, n := range nodes[:2] {
					n.set(func() { fall(n) })
				}
				m, start := locks.Mutex("n"), time.Now()
				for range 100 {
					l, err := m.TryLock(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if err := l.Unlock(); err != nil {
						t.Fatal(err)
					}
				}
				if took := time.Since(start); took > 10*time.Millisecond {
					t.Errorf("100 locks took %v, want that nobody waits for those that are ill", took)
				}
				l, err := m.TryLock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * ttl)
				if err := l.Err(); err != nil {
					t.Errorf("error %v, want that it was renewed", err)
				}
				for _, n := range nodes[:2] {
					n.set(func() { n.dead, n.mute, n.slow = nil, false, 0 })
				}
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
				time.Sleep(2 * time.Second) // what is late arrives
				nothingLeft(t, stores, "n")
			})
		})
	}
}

// If most are ill, that is said in time, and what each of them suffers from.
func TestMajorityFails(t *testing.T) {
	for name, fall := range illnesses {
		if name == "slow" {
			continue // is late, and no more
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := rig(t, quorum.Config{})
				for _, n := range nodes[:3] {
					n.set(func() { fall(n) })
				}
				start := time.Now()
				_, err := locks.Mutex("n").TryLock(t.Context())
				if took := time.Since(start); took > time.Second {
					t.Errorf("it took %v, want no more than an operation may", took)
				}
				if !errors.Is(err, dibs.ErrUnavailable) {
					t.Fatalf("error %v, want that it is unavailable", err)
				}
				for i := range 3 {
					if !strings.Contains(err.Error(), fmt.Sprintf("node %d: ", i)) {
						t.Errorf("error %q, want a word on node %d", err, i)
					}
				}
				time.Sleep(2 * ttl) // what had been granted is given back, or over
				nothingLeft(t, stores, "n")
			})
		})
	}
}

// Many want one name: each has his turn, and none waits for longer than all turns take.
func TestContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, contenders, turns = 4, 64, 3
		const work, trip = 5 * time.Millisecond, 2 * time.Millisecond
		const longest = contenders * (work + 3*trip) * 3 / 2
		var group sync.WaitGroup
		var holders atomic.Int32
		_, stores := memories(5)
		for range clients {
			nodes := make([]driver.Store, len(stores))
			for i, s := range stores {
				nodes[i] = &node{Store: s, slow: trip / 2}
			}
			locks := dibs.New(newQuorum(t, quorum.Config{}, nodes...), dibs.TTL(ttl))
			t.Cleanup(func() {
				locks.Close()
				time.Sleep(2 * quorum.Longest) // what goes on in the background ends
			})
			for range contenders / clients {
				group.Go(func() {
					for range turns {
						start := time.Now()
						l, err := locks.Mutex("n").Lock(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						if waited := time.Since(start); waited > longest {
							t.Errorf("one waited for %v, want at most %v", waited, longest)
						}
						if n := holders.Add(1); n > 1 {
							t.Errorf("%d hold at the same time", n)
						}
						time.Sleep(work)
						holders.Add(-1)
						if err := l.Unlock(); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		group.Wait()
		time.Sleep(2 * quorum.Longest)
		nothingLeft(t, stores, "n")
	})
}

// What can be known to be wrong is refused by the constructor.
func TestBadQuorums(t *testing.T) {
	one, other, third := memstore.New(), memstore.New(), memstore.New()
	var none *memstore.Store
	inner := newQuorum(t, quorum.Config{}, one)
	of := func(nodes ...driver.Store) []driver.Store { return nodes }
	for name, bad := range map[string]struct {
		config quorum.Config
		nodes  []driver.Store
		says   string
	}{
		"no nodes":      {nodes: of(), says: "without nodes"},
		"two nodes":     {nodes: of(one, other), says: "two nodes"},
		"nil":           {nodes: of(one, other, nil), says: "node 2 of a quorum is nil"},
		"nil pointer":   {nodes: of(one, none, other), says: "node 1 of a quorum is nil"},
		"one twice":     {nodes: of(one, other, one), says: "nodes 0 and 2 of a quorum are the same store"},
		"four, one two": {nodes: of(third, one, other, other), says: "nodes 2 and 3"},
		"of quorums":    {nodes: of(inner), says: "is a quorum"},
		"longest":       {config: quorum.Config{Longest: time.Millisecond}, nodes: of(one), says: "longest TTL 1ms"},
		"negative":      {config: quorum.Config{Longest: -time.Second}, nodes: of(one), says: "longest TTL -1s"},
		"too long":      {config: quorum.Config{Longest: 25 * time.Hour}, nodes: of(one), says: "longest TTL 25h"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := bad.config.New(bad.nodes...)
			if s != nil || !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), bad.says) {
				t.Errorf("%v, error %v, want that it is invalid: %s", s, err, bad.says)
			}
		})
	}
}

// A lease that is longer than the longest is refused.
func TestTooLong(t *testing.T) {
	for longest, d := range map[time.Duration]time.Duration{0: quorum.Longest + time.Second, ttl - 1: ttl} {
		locks := dibs.New(newQuorum(t, quorum.Config{Longest: longest}, memstore.New()), dibs.TTL(d))
		defer locks.Close()
		if _, err := locks.Mutex("n").TryLock(t.Context()); !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), "longest") {
			t.Errorf("error %v, want that %v is too long", err, d)
		}
	}
}

func TestNoPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, locks := rig(t, quorum.Config{})
		if _, err := locks.Semaphore("n", 3).TryAcquire(t.Context(), 1); !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), "permits") {
			t.Errorf("error %v, want that a quorum cannot count permits", err)
		}
	})
}

// Who has forgotten votes when the longest lease it may have forgotten is over.
func TestRestartGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, stores, locks := rig(t, quorum.Config{Longest: ttl})
		for _, s := range stores[:3] {
			s.Restart()
		}
		start := time.Now()
		_, err := locks.Mutex("n").TryLock(t.Context())
		var young *driver.RecoveringError
		if !errors.As(err, &young) || young.Remaining <= 0 || young.Remaining > ttl {
			t.Fatalf("error %v, want that nodes were restarted", err)
		}
		for err != nil {
			time.Sleep(100 * time.Millisecond)
			_, err = locks.Mutex("n").TryLock(t.Context())
		}
		if took := time.Since(start); took < ttl || took > ttl+time.Second {
			t.Errorf("they voted after %v, want %v", took, ttl)
		}
	})
}

// A node that lacks the vote for a lease is asked for it at the next renewal.
func TestRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, stores, locks := rig(t, quorum.Config{Longest: ttl})
		nodes[0].dead = errors.New("refused")
		l, err := locks.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		nodes[0].set(func() { nodes[0].dead = nil })
		time.Sleep(ttl / 2)
		for i, s := range stores {
			if state, _ := s.Inspect(t.Context(), "n"); len(state.Holders) != 1 || state.Holders[0].Token != l.Token() {
				t.Errorf("node %d: %+v, want it held", i, state)
			}
		}
	})
}

// A hand-off takes as long as most nodes need to tell, also where the others are dead:
// its first vote is not offered to others, as one of a split vote would be.
func TestHandoffBesideTheDead(t *testing.T) {
	for dead := range 3 {
		t.Run(fmt.Sprint(dead), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, _, locks := rig(t, quorum.Config{Trusting: true})
				for i, n := range nodes {
					n.slow = time.Duration(i+1) * time.Millisecond
					if i >= len(nodes)-dead {
						n.dead = errors.New("refused")
					}
				}
				first, err := locks.Mutex("n").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				var given time.Time
				go func() {
					time.Sleep(time.Second)
					given = time.Now()
					first.Unlock()
				}()
				second, err := locks.Mutex("n").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(given); took != 2*nodes[2].slow {
					t.Errorf("the hand-off took %v, want %v: there and back, for the third node", took, 2*nodes[2].slow)
				}
				second.Unlock()
				for _, n := range nodes {
					n.set(func() { n.dead = nil }) // so that they can be told what was given back
				}
			})
		})
	}
}

// What nodes were not told while they were dead, they are told when they are back; and
// nobody tries for ever.
func TestToldLater(t *testing.T) {
	for _, recovers := range []bool{true, false} {
		t.Run(fmt.Sprint(recovers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := rig(t, quorum.Config{})
				var leases []*dibs.Lease
				for i := range 100 {
					l, err := locks.Mutex(fmt.Sprint(i)).Lock(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					leases = append(leases, l)
				}
				time.Sleep(100 * time.Millisecond) // all nodes have voted
				dead := func(err error) {
					for _, n := range nodes[3:] {
						n.set(func() { n.dead = err })
					}
				}
				dead(errors.New("refused"))
				for _, l := range leases {
					if err := l.Unlock(); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Second)
				if !recovers {
					return // and the bubble ends
				}
				dead(nil)
				time.Sleep(200 * time.Millisecond)
				for i, s := range stores {
					if names, err := s.List(t.Context(), "*"); err != nil || len(names) > 0 {
						t.Errorf("node %d still has %d names, %v", i, len(names), err)
					}
				}
			})
		})
	}
}

// One server behind several clients is seen when they have voted, and refused; a name that
// comes to lead to another node's server later costs that node's vote, and no more.
func TestOneServerTwice(t *testing.T) {
	for name, same := range map[string][]int{
		"all": {0, 0, 0}, "first two": {0, 0, 1}, "last two": {0, 1, 1}, "two of five": {0, 1, 2, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, stores := memories(len(same))
				var nodes []driver.Store
				for _, i := range same {
					nodes = append(nodes, &node{Store: stores[i]})
				}
				locks := dibs.New(newQuorum(t, quorum.Config{}, nodes...), dibs.TTL(ttl))
				var err error
				for range 2 { // when the first is decided, not all have voted
					var l *dibs.Lease
					if l, err = locks.Mutex("n").TryLock(t.Context()); err == nil {
						l.Unlock()
					}
					time.Sleep(time.Second)
				}
				if !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), "the same server") {
					t.Errorf("error %v, want that a server is named twice", err)
				}
				locks.Close()
				time.Sleep(2 * quorum.Longest)
				nothingLeft(t, stores, "n")
			})
		})
	}
}

// A mover is a node whose name comes to lead to another server.
type mover struct {
	driver.Store
	to atomic.Pointer[memstore.Store]
}

func (m *mover) Acquire(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
	return m.to.Load().Acquire(ctx, c)
}

func (m *mover) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	return m.to.Load().Release(ctx, r)
}

func (m *mover) Cancel(ctx context.Context, c driver.AcquireRequest) error {
	return m.to.Load().Cancel(ctx, c)
}

func TestNameMovesToAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, stores := memories(3)
		m := &mover{Store: nodes[2]}
		m.to.Store(stores[2])
		nodes[2] = m
		locks := dibs.New(newQuorum(t, quorum.Config{}, nodes...), dibs.TTL(ttl))
		defer locks.Close()
		for _, to := range []int{2, 0, 1, 2} {
			m.to.Store(stores[to])
			for range 3 {
				l, err := locks.Mutex("n").TryLock(t.Context())
				if err != nil {
					t.Fatalf("node 2 leads to server %d: error %v, want that the others are enough", to, err)
				}
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
			}
		}
	})
}
