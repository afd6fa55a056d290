package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/quorum"
	"github.com/dibslock/dibs/storetest"
)

const ttl = 10 * time.Second

func memories(n int) (nodes []dibs.Store, stores []*memstore.Store) {
	for range n {
		m := memstore.New()
		nodes, stores = append(nodes, m), append(stores, m)
	}
	return nodes, stores
}

func TestStore(t *testing.T) {
	for n := 1; n <= 5; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			storetest.RunInBubble(t, func(*testing.T) dibs.Store {
				nodes, _ := memories(n)
				return quorum.Config{Longest: dibs.MaxTTL}.New(nodes...)
			})
		})
	}
}

// A node is a store that may be mute, dead or slow.
type node struct {
	dibs.Store
	mu   sync.Mutex
	dead error
	mute bool
	slow time.Duration
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
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return &dibs.UnavailableError{Op: "test", Cause: context.Cause(ctx)}
	}
}

func (n *node) Acquire(ctx context.Context, c dibs.Claim) (dibs.Answer, error) {
	if err := n.wait(ctx); err != nil {
		return dibs.Answer{}, err
	}
	return n.Store.Acquire(ctx, c)
}

func (n *node) Release(ctx context.Context, r dibs.Release) (bool, error) {
	if err := n.wait(ctx); err != nil {
		return false, err
	}
	return n.Store.Release(ctx, r)
}

func (n *node) Abandon(ctx context.Context, c dibs.Claim) error {
	if err := n.wait(ctx); err != nil {
		return err
	}
	return n.Store.Abandon(ctx, c)
}

func (n *node) Extend(ctx context.Context, holds []dibs.Hold) []error {
	if err := n.wait(ctx); err != nil {
		errs := make([]error, len(holds))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	return n.Store.Extend(ctx, holds)
}

// rig is five nodes, and a client of their quorum.
func rig(t *testing.T, c quorum.Config) (nodes []*node, stores []*memstore.Store, locks *dibs.Client) {
	t.Helper()
	all, stores := memories(5)
	for i, s := range all {
		n := &node{Store: s}
		nodes, all[i] = append(nodes, n), n
	}
	locks = dibs.New(c.New(all...), dibs.TTL(ttl))
	t.Cleanup(func() { locks.Close() })
	return nodes, stores, locks
}

func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func TestBadQuorums(t *testing.T) {
	one, other := memstore.New(), memstore.New()
	for name, s := range map[string]*quorum.Store{
		"no nodes":      quorum.New(),
		"nil":           quorum.New(one, nil),
		"one twice":     quorum.New(one, other, one),
		"longest":       quorum.Config{Longest: time.Millisecond}.New(one),
		"too long":      quorum.New(one),
		"of quorums":    quorum.New(quorum.New(one), quorum.New(other)),
		"not so longer": quorum.Config{Longest: ttl - 1}.New(one),
	} {
		t.Run(name, func(t *testing.T) {
			d := ttl
			if name == "too long" {
				d = quorum.Longest + time.Second
			}
			locks := dibs.New(s, dibs.TTL(d))
			defer locks.Close()
			if _, err := locks.Mutex("n").TryLock(t.Context()); !errors.Is(err, dibs.ErrInvalid) {
				t.Errorf("error %v, want that it is invalid", err)
			}
		})
	}
}

func TestNoPermits(t *testing.T) {
	_, _, locks := rig(t, quorum.Config{})
	if _, err := locks.Semaphore("n", 3).TryAcquire(t.Context(), 1); !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), "permits") {
		t.Errorf("error %v, want that a quorum cannot count permits", err)
	}
}

func TestMinority(t *testing.T) {
	for name, fail := range map[string]func(n *node){
		"dead": func(n *node) { n.dead = errors.New("refused") },
		"mute": func(n *node) { n.mute = true },
		"slow": func(n *node) { n.slow = 500 * time.Millisecond },
	} {
		inBubble(t, name, func(t *testing.T) {
			nodes, stores, locks := rig(t, quorum.Config{})
			fail(nodes[1])
			fail(nodes[4])
			start := time.Now()
			for range 100 {
				l, err := locks.Mutex("n").TryLock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Unlock(); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(start); took > 0 {
				t.Errorf("100 locks took %v: they waited for a minority", took)
			}
			l, err := locks.Mutex("kept").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * ttl)
			if err := l.Unlock(); err != nil {
				t.Errorf("after five TTLs: %v", err)
			}
			time.Sleep(time.Minute)
			for i, s := range stores { // what a slow one was asked is undone there, too
				for _, name := range []string{"n", "kept"} {
					if state, _ := s.Inspect(t.Context(), name); len(state.Holders)+state.Waiting > 0 {
						t.Errorf("node %d: %q: %+v", i, name, state)
					}
				}
			}
		})
	}
}

func TestMajorityFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, stores, locks := rig(t, quorum.Config{})
		nodes[0].dead, nodes[2].mute, nodes[3].dead = errors.New("refused"), true, errors.New("reset")
		start := time.Now()
		_, err := locks.Mutex("n").Lock(t.Context())
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v, and the time for one operation is 1s", took)
		}
		if !errors.Is(err, dibs.ErrUnavailable) {
			t.Fatalf("error %v, want that it is unavailable", err)
		}
		for _, want := range []string{"2 of 5", "node 0: refused", "node 2: ", "node 3: reset"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		}
		time.Sleep(time.Minute)
		for i, s := range stores {
			if state, _ := s.Inspect(t.Context(), "n"); len(state.Holders)+state.Waiting > 0 {
				t.Errorf("left behind on node %d: %+v", i, state)
			}
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
		var young *dibs.RestartedError
		if !errors.As(err, &young) || young.Left <= 0 || young.Left > ttl {
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

// One server under several names has one vote.
func TestOneServerTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := memories(3)
		all[1], all[2] = &node{Store: stores[0]}, &node{Store: stores[0]}
		locks := dibs.New(quorum.New(all...), dibs.TTL(ttl))
		defer locks.Close()
		_, err := locks.Mutex("n").TryLock(t.Context())
		if !errors.Is(err, dibs.ErrUnavailable) || !strings.Contains(err.Error(), "another node") {
			t.Errorf("error %v, want that a server is named twice", err)
		}
	})
}

// The oldest enters first, whatever order the nodes heard them in.
func TestContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const contenders, rounds, work = 64, 3, 5 * time.Millisecond
		nodes, _ := memories(5)
		for i := range nodes {
			nodes[i] = &node{Store: nodes[i], slow: time.Duration(i+1) * 100 * time.Microsecond}
		}
		store := quorum.New(nodes...)
		done := make(chan time.Duration, contenders*rounds)
		for range contenders {
			locks := dibs.New(store, dibs.TTL(ttl))
			go func() {
				defer locks.Close()
				for range rounds {
					start := time.Now()
					err := locks.Mutex("n").Do(t.Context(), func(context.Context) error {
						time.Sleep(work)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
					done <- time.Since(start)
				}
			}()
		}
		start, longest := time.Now(), time.Duration(0)
		for range contenders * rounds {
			longest = max(longest, <-done)
		}
		t.Logf("FIGURE %d turns of %v in %v, the longest wait %v", contenders*rounds, work, time.Since(start), longest)
		time.Sleep(time.Minute) // what goes on in the background ends
		if fair := contenders * (work + 3*time.Millisecond); longest > fair*3/2 {
			t.Errorf("somebody waited %v, where %v would be fair", longest, fair)
		}
	})
}
