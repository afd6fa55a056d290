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
		for _, c := range storetest.Cases() {
			t.Run(fmt.Sprint(n, "/", c.Name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					nodes, _ := memories(n)
					c.Run(t, quorum.Config{Longest: dibs.MaxTTL}.New(nodes...))
				})
			})
		}
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
	t.Cleanup(func() {
		locks.Close()
		time.Sleep(2 * time.Second) // what goes on in the background ends
	})
	return nodes, stores, locks
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
		_, err := locks.Mutex("n").TryLock(t.Context())
		locks.Close()
		time.Sleep(2 * time.Second)
		if !errors.Is(err, dibs.ErrUnavailable) || !strings.Contains(err.Error(), "another node") {
			t.Errorf("error %v, want that a server is named twice", err)
		}
	})
}
