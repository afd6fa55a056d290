package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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

func newNodes(n int) (nodes []driver.Voter, stores []*memstore.Store) {
	for range n {
		m := memstore.New()
		nodes, stores = append(nodes, m), append(stores, m)
	}
	return nodes, stores
}

func newQuorum(t *testing.T, o quorum.Option, nodes ...driver.Voter) *quorum.Store {
	t.Helper()
	s, err := quorum.New(nodes, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	for _, n := range []int{1, 3, 4, 5} {
		for _, c := range append(storetest.Cases(), storetest.LostReplyCases()...) {
			if strings.HasPrefix(c.Name, "reserve for long") {
				continue // see TestTooLongInterval
			}
			t.Run(fmt.Sprint(n, "/", c.Name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					nodes, _ := newNodes(n)
					c.Run(t, driver.Complete(settled{newQuorum(t, quorum.MaxTTL(driver.MaxTTL), nodes...)}))
				})
			})
		}
	}
}

// A settled store is a quorum whose nodes have all executed the majority's operations: each has the
// lease, and is watched. Otherwise a test would rarely see a revocation that only some nodes in a
// majority can report.
type settled struct{ *quorum.Store }

// Acquire implements driver.Store.
func (s settled) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	awaitNodes() // the token's earlier request may be on its way to a node
	defer awaitNodes()
	return s.Store.Acquire(ctx, r)
}

// Watch implements driver.Store.
func (s settled) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	return s.Store.Watch(ctx, client, busy, func(e driver.Event) {
		if e.Kind == driver.EventConnected {
			awaitNodes()
		}
		on(e)
	})
}

// awaitNodes returns when nothing is left to do at this time: it is virtual.
func awaitNodes() { time.Sleep(time.Nanosecond) }

// A node is a store that can hang, fail or be slow.
type node struct {
	driver.Voter
	mu    sync.Mutex
	dead  error
	hangs bool
	delay time.Duration // for each message, one way

	// fault, if set, is called first. If it returns an error, the call returns this error, and the
	// message arrives when fault calls deliver, or never.
	fault func(verb string, deliver func()) error
}

func (n *node) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func (n *node) wait(ctx context.Context) error {
	n.mu.Lock()
	dead, hangs, delay := n.dead, n.hangs, n.delay
	n.mu.Unlock()
	if dead != nil {
		return &driver.UnavailableError{Op: "test", Cause: dead}
	}
	if hangs {
		delay = time.Hour
	}
	if delay == 0 { // a timer due at once sometimes crashes the race detector: go.dev/issue/78156
		return contextEnded(ctx)
	}
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return contextEnded(ctx)
	}
}

func contextEnded(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return &driver.UnavailableError{Op: "test", Cause: context.Cause(ctx)}
}

// send transmits a request to the node, and the reply back.
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

func (n *node) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return send(ctx, n, "acquire", func(ctx context.Context) (driver.AcquireReply, error) { return n.Voter.Acquire(ctx, r) })
}

func (n *node) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	return send(ctx, n, "release", func(ctx context.Context) (bool, error) { return n.Voter.Release(ctx, r) })
}

func (n *node) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	_, err := send(ctx, n, "cancel", func(ctx context.Context) (bool, error) { return true, n.Voter.Cancel(ctx, r) })
	return err
}

func (n *node) Resize(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return send(ctx, n, "resize", func(ctx context.Context) (driver.AcquireReply, error) { return n.Voter.Resize(ctx, r) })
}

func (n *node) Extend(ctx context.Context, holds []driver.ExtendRequest) []error {
	errs, err := send(ctx, n, "extend", func(ctx context.Context) ([]error, error) { return n.Voter.Extend(ctx, holds), nil })
	if err != nil {
		errs = make([]error, len(holds))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

func (n *node) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	return n.Voter.Watch(ctx, client, busy, func(e driver.Event) {
		n.mu.Lock()
		defer n.mu.Unlock()
		deliver := func() {
			if ctx.Err() == nil {
				on(e)
			}
		}
		if n.delay == 0 { // see wait
			go deliver()
			return
		}
		time.AfterFunc(n.delay, deliver)
	})
}

// newClient returns a client of a quorum of five nodes.
func newClient(t *testing.T, o quorum.Option) (nodes []*node, stores []*memstore.Store, locks *dibs.Client) {
	t.Helper()
	_, stores = newNodes(5)
	nodes, locks = newClientOf(t, o, stores...)
	return nodes, stores, locks
}

// newClientOf returns a client of a quorum of stores, with its own connection to each of
// them.
func newClientOf(t *testing.T, o quorum.Option, stores ...*memstore.Store) (nodes []*node, locks *dibs.Client) {
	t.Helper()
	var all []driver.Voter
	for _, s := range stores {
		n := &node{Voter: s}
		nodes, all = append(nodes, n), append(all, n)
	}
	store := newQuorum(t, o, all...)
	locks = dibs.New(store, dibs.TTL(ttl))
	t.Cleanup(func() {
		locks.Close()
		store.Close()
	})
	return nodes, locks
}

// A waiter can get a slow node's vote before the holder does. It must give the vote to the
// holder, which could not survive another node's failure otherwise.
func TestWaiterWithAVoteOfAFewNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, stores := newNodes(3)
		nodes, first := newClientOf(t, quorum.DurableNodes(), stores...)
		_, second := newClientOf(t, quorum.DurableNodes(), stores...)
		warm, err := first.Mutex("warm").Lock(t.Context()) // the first request of a client does not queue
		if err != nil {
			t.Fatal(err)
		}
		defer warm.Unlock()
		time.Sleep(time.Second)
		nodes[1].set(func() { nodes[1].delay = 100 * time.Millisecond })
		l, err := first.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // so that the second ticket is larger
		done := make(chan error)
		go func() {
			waiter, err := second.Mutex("n").Lock(t.Context())
			if err == nil {
				err = waiter.Unlock()
			}
			done <- err
		}()
		time.Sleep(50 * time.Millisecond)
		wantWeights(t, "at first", stores, "n", string(l.Token()), 0, -1, 0)
		time.Sleep(5 * time.Second)
		wantWeights(t, "after a heartbeat", stores, "n", string(l.Token()), 0, 0, 0)
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// wantEmpty checks that no node has a holder or waiter for a name.
func wantEmpty(t *testing.T, stores []*memstore.Store, name string) {
	t.Helper()
	for i, s := range stores {
		if state, err := s.Inspect(t.Context(), name); err != nil || state.Holding+state.Waiting > 0 {
			t.Errorf("node %d: %+v, error %v, want nothing left", i, state, err)
		}
	}
}

var failures = map[string]func(*node){
	"dead":  func(n *node) { n.dead = errors.New("refused") },
	"hangs": func(n *node) { n.hangs = true },
	"slow":  func(n *node) { n.delay = 500 * time.Millisecond },
}

// Two failed nodes out of five should have no effect.
func TestMinority(t *testing.T) {
	for name, breakNode := range failures {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := newClient(t, quorum.Option{})
				for _, n := range nodes[:2] {
					n.set(func() { breakNode(n) })
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
					t.Errorf("100 locks took %v, want no wait for the failed nodes", took)
				}
				l, err := m.TryLock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * ttl)
				if err := l.Err(); err != nil {
					t.Errorf("error %v, want the lease renewed", err)
				}
				for _, n := range nodes[:2] {
					n.set(func() { n.dead, n.hangs, n.delay = nil, false, 0 })
				}
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
				time.Sleep(2 * time.Second) // late messages arrive
				wantEmpty(t, stores, "n")
			})
		})
	}
}

// If a majority fails, the error should arrive in time and name each node's failure.
func TestMajorityFails(t *testing.T) {
	for name, breakNode := range failures {
		if name == "slow" {
			continue // a slow majority only delays
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := newClient(t, quorum.Option{})
				for _, n := range nodes[:3] {
					n.set(func() { breakNode(n) })
				}
				start := time.Now()
				_, err := locks.Mutex("n").TryLock(t.Context())
				if took := time.Since(start); took > time.Second {
					t.Errorf("took %v, want at most 1s", took)
				}
				if !errors.Is(err, dibs.ErrUnavailable) {
					t.Fatalf("error %v, want ErrUnavailable", err)
				}
				for i := range 3 {
					if !strings.Contains(err.Error(), fmt.Sprintf("node %d: ", i)) {
						t.Errorf("error %q, want it to mention node %d", err, i)
					}
				}
				time.Sleep(2 * ttl) // granted votes were cancelled, or have expired
				wantEmpty(t, stores, "n")
			})
		})
	}
}

// Many clients contend for a single name: each should get its turns, and none should wait longer
// than all turns together take.
func TestContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, contenders, turns = 4, 64, 3
		const work, trip = 5 * time.Millisecond, 2 * time.Millisecond
		const longest = contenders * (work + 3*trip) * 3 / 2
		var group sync.WaitGroup
		var holders atomic.Int32
		_, stores := newNodes(5)
		for range clients {
			nodes := make([]driver.Voter, len(stores))
			for i, s := range stores {
				nodes[i] = &node{Voter: s, delay: trip / 2}
			}
			locks := dibs.New(newQuorum(t, quorum.Option{}, nodes...), dibs.TTL(ttl))
			t.Cleanup(func() {
				locks.Close()
				time.Sleep(2 * quorum.DefaultMaxTTL) // ends the releases in the background
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
							t.Errorf("a waiter waited %v, want at most %v", waited, longest)
						}
						if n := holders.Add(1); n > 1 {
							t.Errorf("%d concurrent holders", n)
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
		time.Sleep(2 * quorum.DefaultMaxTTL)
		wantEmpty(t, stores, "n")
	})
}

// The constructor should reject every invalid configuration that it can detect.
func TestInvalidConfig(t *testing.T) {
	one, other, third := memstore.New(), memstore.New(), memstore.New()
	var none *memstore.Store
	of := func(nodes ...driver.Voter) []driver.Voter { return nodes }
	for name, bad := range map[string]struct {
		option  quorum.Option
		nodes   []driver.Voter
		message string
	}{
		"no nodes":      {nodes: of(), message: "has no nodes"},
		"two nodes":     {nodes: of(one, other), message: "two nodes"},
		"nil":           {nodes: of(one, other, nil), message: "node 2 of a quorum is nil"},
		"nil pointer":   {nodes: of(one, none, other), message: "node 1 of a quorum is nil"},
		"one twice":     {nodes: of(one, other, one), message: "nodes 0 and 2 of a quorum are the same store"},
		"four, one two": {nodes: of(third, one, other, other), message: "nodes 2 and 3"},
		"too short":     {option: quorum.MaxTTL(time.Millisecond), nodes: of(one), message: "MaxTTL 1ms"},
		"zero":          {option: quorum.MaxTTL(0), nodes: of(one), message: "MaxTTL 0s"},
		"negative":      {option: quorum.MaxTTL(-time.Second), nodes: of(one), message: "MaxTTL -1s"},
		"too long":      {option: quorum.MaxTTL(25 * time.Hour), nodes: of(one), message: "MaxTTL 25h"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := quorum.New(bad.nodes, bad.option)
			if s != nil || !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), bad.message) {
				t.Errorf("%v, error %v, want ErrInvalid with %q", s, err, bad.message)
			}
		})
	}
}

// A lease longer than MaxTTL is rejected.
func TestTooLong(t *testing.T) {
	for longest, d := range map[time.Duration]time.Duration{quorum.DefaultMaxTTL: quorum.DefaultMaxTTL + time.Second, ttl - 1: ttl} {
		locks := dibs.New(newQuorum(t, quorum.MaxTTL(longest), memstore.New()), dibs.TTL(d))
		defer locks.Close()
		if _, err := locks.Mutex("n").TryLock(t.Context()); !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), "MaxTTL") {
			t.Errorf("error %v, want %v rejected as too long", err, d)
		}
	}
}

// A quorum reserves no name for longer than its longest TTL, because a node that lost its memory
// abstains only that long.
func TestTooLongInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for longest, every := range map[time.Duration]time.Duration{0: time.Hour, driver.MaxTTL: 30 * 24 * time.Hour} {
			option := quorum.Option{}
			if longest != 0 {
				option = quorum.MaxTTL(longest)
			}
			_, _, locks := newClient(t, option)
			ran := func(context.Context) error { t.Error("it ran"); return nil }
			err := locks.Once("n", every).Do(t.Context(), ran)
			if !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), "interval") || !strings.Contains(err.Error(), every.String()) {
				t.Errorf("interval %v: %v, want ErrInvalid that names the interval", every, err)
			}
			day := func(context.Context) error { return nil }
			if longest == driver.MaxTTL {
				if err := locks.Once("n", longest).Do(t.Context(), day); err != nil {
					t.Errorf("interval %v: %v", longest, err)
				}
			}
		}
	})
}

func TestSemaphoreRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, locks := newClient(t, quorum.Option{})
		if _, err := locks.Semaphore("n", 3).Permits(1).TryLock(t.Context()); !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), "permits") {
			t.Errorf("error %v, want semaphore permits rejected", err)
		}
	})
}

// A restarted node votes again when the longest lease it may have lost is over.
func TestRecoveryWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, stores, locks := newClient(t, quorum.MaxTTL(ttl))
		for _, s := range stores[:3] {
			s.LoseData()
		}
		start := time.Now()
		_, err := locks.Mutex("n").TryLock(t.Context())
		var young *driver.RecoveringError
		if !errors.As(err, &young) || young.Remaining <= 0 || young.Remaining > ttl {
			t.Fatalf("error %v, want RecoveringError", err)
		}
		for err != nil {
			time.Sleep(100 * time.Millisecond)
			_, err = locks.Mutex("n").TryLock(t.Context())
		}
		if took := time.Since(start); took < ttl || took > ttl+time.Second {
			t.Errorf("the nodes voted after %v, want %v", took, ttl)
		}
	})
}

// A node without the vote for a lease is asked for it at the next renewal.
func TestRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, stores, locks := newClient(t, quorum.MaxTTL(ttl))
		nodes[0].dead = errors.New("refused")
		l, err := locks.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		nodes[0].set(func() { nodes[0].dead = nil })
		time.Sleep(ttl / 2)
		for i, s := range stores {
			if state, _ := s.Inspect(t.Context(), "n"); len(state.Holders) != 1 || state.Holders[0].Token != string(l.Token()) {
				t.Errorf("node %d: %+v, want it held", i, state)
			}
		}
	})
}

// A hand-off takes as long as a majority needs for its notifications, even if the other
// nodes are dead. Its first vote is not relinquished, as a split vote would be.
func TestHandoffWithDeadNodes(t *testing.T) {
	for dead := range 3 {
		t.Run(fmt.Sprint(dead), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, _, locks := newClient(t, quorum.DurableNodes())
				for i, n := range nodes {
					n.delay = time.Duration(i+1) * time.Millisecond
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
				if took := time.Since(given); took != 2*nodes[2].delay {
					t.Errorf("the hand-off took %v, want %v: a round trip to the third node", took, 2*nodes[2].delay)
				}
				second.Unlock()
				for _, n := range nodes {
					n.set(func() { n.dead = nil }) // so that the releases can be redelivered
				}
			})
		})
	}
}

// Nodes that are dead during a release should get it when they are back. Redelivery should end if
// they do not come back.
func TestRedelivery(t *testing.T) {
	for _, recovers := range []bool{true, false} {
		t.Run(fmt.Sprint(recovers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := newClient(t, quorum.Option{})
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

// A server behind several clients should be detected when they voted, and rejected. An
// address that later resolves to another node's server should cost only that node's vote.
func TestDuplicateServer(t *testing.T) {
	for name, same := range map[string][]int{
		"all": {0, 0, 0}, "first two": {0, 0, 1}, "last two": {0, 1, 1}, "two of five": {0, 1, 2, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, stores := newNodes(len(same))
				var nodes []driver.Voter
				for _, i := range same {
					nodes = append(nodes, &node{Voter: stores[i]})
				}
				locks := dibs.New(newQuorum(t, quorum.Option{}, nodes...), dibs.TTL(ttl))
				var err error
				for range 2 { // when the first is decided, not all nodes have voted
					var l *dibs.Lease
					if l, err = locks.Mutex("n").TryLock(t.Context()); err == nil {
						l.Unlock()
					}
					time.Sleep(time.Second)
				}
				if !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), "the same server") {
					t.Errorf("error %v, want a duplicate server rejected", err)
				}
				locks.Close()
				time.Sleep(2 * quorum.DefaultMaxTTL)
				wantEmpty(t, stores, "n")
			})
		})
	}
}

// A movingNode is a node whose address can be changed to another server.
type movingNode struct {
	driver.Voter
	to atomic.Pointer[memstore.Store]
}

func (m *movingNode) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return m.to.Load().Acquire(ctx, r)
}

func (m *movingNode) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	return m.to.Load().Release(ctx, r)
}

func (m *movingNode) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	return m.to.Load().Cancel(ctx, r)
}

func TestNameMovesToAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, stores := newNodes(3)
		m := &movingNode{Voter: nodes[2]}
		m.to.Store(stores[2])
		nodes[2] = m
		locks := dibs.New(newQuorum(t, quorum.Option{}, nodes...), dibs.TTL(ttl))
		defer locks.Close()
		for _, to := range []int{2, 0, 1, 2} {
			m.to.Store(stores[to])
			for range 3 {
				l, err := locks.Mutex("n").TryLock(t.Context())
				if err != nil {
					t.Fatalf("node 2 resolves to server %d: error %v, want the other nodes to suffice", to, err)
				}
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
			}
		}
	})
}

// A slowNode answers a fence reservation after a while.
type slowNode struct{ *memstore.Store }

func (n slowNode) ReserveFences(ctx context.Context, r driver.FenceRequest) (driver.FenceReply, error) {
	time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond) // virtual
	return n.Store.ReserveFences(ctx, r)
}

// Reservations that reach the nodes in different orders should have no common fence.
func TestConcurrentReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := quorum.New([]driver.Voter{slowNode{memstore.New()}, slowNode{memstore.New()}, slowNode{memstore.New()}})
		if err != nil {
			t.Fatal(err)
		}
		locks := dibs.New(q)
		l, err := locks.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		const calls, each = 200, 10
		firsts := make([]uint64, calls)
		var group sync.WaitGroup
		for worker := range 4 {
			group.Go(func() {
				for i := worker; i < calls; i += 4 {
					first, err := l.ReserveFences(t.Context(), each)
					if err != nil {
						t.Error(err)
					}
					firsts[i] = first
				}
			})
		}
		group.Wait()
		slices.Sort(firsts)
		for i := range calls - 1 {
			if firsts[i]+each > firsts[i+1] {
				t.Errorf("fences from %d and from %d on, %d each", firsts[i], firsts[i+1], each)
			}
		}
		for _, err := range []error{l.Unlock(), locks.Close(), q.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
}
