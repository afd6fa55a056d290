package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/quorum"
	"github.com/dibslock/dibs/quorum/internal/core"
)

// A viewedNode is a store with replaced states. It counts the calls to Inspect and InspectAll.
type viewedNode struct {
	*memstore.Store
	inspects, inspectAlls atomic.Int32

	// replace, if set, returns the node's result in place of a state.
	replace func(ctx context.Context, s driver.State) (driver.State, error)
	// addFence is added to the events' fences.
	addFence uint64
}

func (n *viewedNode) Inspect(ctx context.Context, name string) (driver.State, error) {
	n.inspects.Add(1)
	state, err := n.Store.Inspect(ctx, name)
	if n.replace != nil {
		return n.replace(ctx, state)
	}
	return state, err
}

func (n *viewedNode) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	n.inspectAlls.Add(1)
	states, err := n.Store.InspectAll(ctx, names)
	if n.replace == nil {
		return states, err
	}
	for i, state := range states {
		replaced, err := n.replace(ctx, state)
		var wrong *driver.WrongTypeError
		if errors.As(err, &wrong) {
			replaced, err = wrong.State, nil
		}
		if err != nil {
			return nil, err
		}
		states[i] = replaced
	}
	return states, nil
}

func (n *viewedNode) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	return n.Store.Watch(ctx, client, busy, func(e driver.Event) {
		if e.Fence != 0 {
			e.Fence += n.addFence
		}
		on(e)
	})
}

// newViewed returns a quorum with three nodes.
func newViewed(t *testing.T) ([]*viewedNode, *quorum.Store) {
	t.Helper()
	var nodes []*viewedNode
	var all []driver.Voter
	for range 3 {
		n := &viewedNode{Store: memstore.New()}
		nodes, all = append(nodes, n), append(all, n)
	}
	s := newQuorum(t, quorum.DurableNodes(), all...)
	t.Cleanup(func() { _ = s.Close() })
	return nodes, s
}

const (
	clientID    = "web-7:211:q3ZkAbCdEfGhIjKl"
	mutexToken  = clientID + ":m-abcdefgh:backup"
	otherToken  = clientID + ":m-ijklmnop"
	readerToken = clientID + ":r-qrstuvwx"
)

func requestFor(name, token string, weight, limit int) driver.AcquireRequest {
	return driver.AcquireRequest{
		Name: name, Token: token, Client: clientID, TTL: time.Minute, Weight: weight, Limit: limit, Queue: true, Until: time.Now().Add(time.Minute),
	}
}

func acquireOn(t *testing.T, s driver.Store, r driver.AcquireRequest) driver.AcquireReply {
	t.Helper()
	a, err := s.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait() // the remaining nodes
	return a
}

// bothStates returns a name's state from Inspect and from InspectAll, which must agree.
func bothStates(t *testing.T, s driver.Store, name string) driver.State {
	t.Helper()
	one, err := driver.Complete(s).Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	all, err := driver.Complete(s).InspectAll(t.Context(), []string{"free", name})
	if err != nil {
		t.Fatal(err)
	}
	if have, want := fmt.Sprint(withoutNodes(all[1])), fmt.Sprint(withoutNodes(one)); have != want {
		t.Fatalf("InspectAll returns %s, and Inspect %s", have, want)
	}
	for i, n := range one.Nodes {
		if have, want := fmt.Sprint(all[1].Nodes[i].Err), fmt.Sprint(n.Err); have != want {
			t.Fatalf("node %d: InspectAll returns %s, and Inspect %s", i, have, want)
		}
	}
	return one
}

// withoutNodes returns the fields on which InspectAll and Inspect must agree.
func withoutNodes(s driver.State) driver.State {
	s.Nodes, s.Holders, s.Waiters = nil, slices.Clone(s.Holders), slices.Clone(s.Waiters)
	for i := range s.Holders {
		s.Holders[i].Remaining = 0
	}
	for i := range s.Waiters {
		s.Waiters[i].Waited = 0
	}
	if s.Foreign != nil {
		s.Foreign = nil
		s.Name += ", foreign"
	}
	return s
}

// A state contains the nodes' states, in their order, with the error for a node that failed or
// did not answer in time. InspectAll queries each node once.
func TestNodesOfAState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, s := newViewed(t)
		acquireOn(t, s, requestFor("n", mutexToken, 1, 1))
		failed := errors.New("down")
		for what, fail := range map[string]func(context.Context) error{
			"down":  func(context.Context) error { return &driver.UnavailableError{Op: "test", Cause: failed} },
			"hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		} {
			synctest.Wait() // the hanging calls ended
			nodes[1].replace = func(ctx context.Context, s driver.State) (driver.State, error) { return driver.State{}, fail(ctx) }
			begin := time.Now()
			state := bothStates(t, s, "n")
			if took := time.Since(begin); took > 2*core.StragglerTimeout {
				t.Errorf("%s: took %v", what, took)
			}
			if len(state.Holders) != 1 || state.Holders[0].Token != mutexToken || state.Holders[0].Kind != driver.KindMutex || state.Holders[0].Limit != 1 {
				t.Errorf("%s: holders %+v, want %s", what, state.Holders, mutexToken)
			}
			if len(state.Nodes) != 3 || len(state.Nodes[1].State.Holders) != 0 {
				t.Fatalf("%s: nodes %+v, want three, the second one without a state", what, state.Nodes)
			}
			want := failed
			if what == "hangs" {
				want = core.ErrNoAnswer
			}
			if err := state.Nodes[1].Err; !errors.Is(err, want) {
				t.Errorf("%s: error %v, want %v", what, err, want)
			}
			for _, i := range []int{0, 2} {
				if n := state.Nodes[i]; n.Err != nil || len(n.State.Holders) != 1 || n.State.Holders[0].Token != mutexToken {
					t.Errorf("%s: node %d: %+v, want %s as holder", what, i, n, mutexToken)
				}
			}
		}
		before := nodes[0].inspectAlls.Load()
		names := make([]string, 1000)
		for i := range names {
			names[i] = fmt.Sprint("n", i)
		}
		states, err := s.InspectAll(t.Context(), names)
		if err != nil || len(states) != len(names) {
			t.Fatalf("%d states, %v", len(states), err)
		}
		if n := nodes[0].inspectAlls.Load() - before; n != 1 || nodes[0].inspects.Load() != 2 {
			t.Errorf("InspectAll was called %d times for 1,000 names, want once, and Inspect %d times, want 2", n, nodes[0].inspects.Load())
		}
		synctest.Wait()
		nodes[0].replace = nodes[1].replace
		if _, err := s.InspectAll(t.Context(), names); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("without a majority: error %v, want ErrUnavailable", err)
		}
	})
}

// A diverging node shows only in its own state. Holders and waiters keep kind, weight and limit.
func TestDivergingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, s := newViewed(t)
		acquireOn(t, nodes[2].Store, requestFor("n", otherToken, 1, 1))
		acquireOn(t, s, requestFor("n", mutexToken, 1, 1))
		acquireOn(t, s, requestFor("n", readerToken, 1, driver.Unlimited))
		state := bothStates(t, s, "n")
		if len(state.Holders) != 1 || state.Holders[0].Token != mutexToken || state.Holders[0].Label != "backup" {
			t.Errorf("holders %+v, want %s", state.Holders, mutexToken)
		}
		if n := state.Nodes[2].State; len(n.Holders) != 1 || n.Holders[0].Token != otherToken {
			t.Errorf("node 2: holders %+v, want %s", n.Holders, otherToken)
		}
		want := driver.Waiter{Token: readerToken, Kind: driver.KindReader, Weight: 1, Limit: driver.Unlimited}
		if len(state.Waiters) != 1 || state.Waiters[0] != want {
			t.Errorf("waiters %+v, want %+v", state.Waiters, want)
		}
	})
}

// A token that holds a name on too few nodes is a waiter, with its request's weight and limit.
func TestHolderOnTooFewNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, s := newViewed(t)
		for i, tokens := range [][]string{{mutexToken, otherToken}, {otherToken, mutexToken}, {}} {
			for _, token := range tokens {
				acquireOn(t, nodes[i].Store, requestFor("n", token, 1, 1))
			}
			acquireOn(t, nodes[i].Store, requestFor("shared", []string{readerToken, "a", "b"}[i], 1, driver.Unlimited))
		}
		acquireOn(t, nodes[1].Store, requestFor("shared", readerToken, 1, driver.Unlimited))
		state := bothStates(t, s, "n")
		if len(state.Holders) != 0 || state.Waiting != 2 {
			t.Fatalf("%+v, want no holder and two waiters", withoutNodes(state))
		}
		for _, w := range state.Waiters {
			if w.Kind != driver.KindMutex || w.Weight != 1 || w.Limit != 1 {
				t.Errorf("waiter %+v, want a mutex, 1 of 1", w)
			}
		}
		state = bothStates(t, s, "shared")
		if len(state.Holders) != 1 || state.Holders[0].Token != readerToken || state.Holders[0].Kind != driver.KindReader {
			t.Errorf("%+v, want the reader as holder", withoutNodes(state))
		}
	})
}

// A value that dibs did not write should be in the state if a majority of the nodes has it. A
// quorum should not end it.
func TestForeignOnNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found := driver.Foreign{Key: "lock:n", Type: "string", Kind: "UUID", Lock: true, Mark: "x", Advice: "wait"}
		for number := range 4 {
			nodes, s := newViewed(t)
			for _, n := range nodes[:number] {
				n.replace = func(_ context.Context, state driver.State) (driver.State, error) {
					state.Foreign = new(found)
					state.Holders, state.Holding = []driver.Holder{{Token: "8743c9c0", Remaining: -1}}, 1
					return state, nil
				}
			}
			state := bothStates(t, s, "n")
			if want := number >= 2; (state.Foreign != nil) != want || (len(state.Holders) == 1) != want {
				t.Errorf("on %d of 3 nodes: %+v", number, withoutNodes(state))
			}
			if f := state.Foreign; f != nil && (f.Removable() || f.Kind != found.Kind || f.Advice != found.Advice) {
				t.Errorf("on %d of 3 nodes: %+v, want it not removable", number, f)
			}
			for i, n := range state.Nodes {
				if (n.State.Foreign != nil) != (i < number) || n.Err != nil {
					t.Errorf("on %d of 3 nodes: node %d: %+v", number, i, n)
				}
			}
		}
	})
}

// If a majority of the nodes has a value with another type, Inspect should return a WrongTypeError.
// On a minority it should prevent nothing.
func TestWrongTypeOnNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found := &driver.Foreign{Key: "lock:n", Type: "hash", Kind: "Redisson RLock", Lock: true}
		for number := range 4 {
			for _, described := range []bool{true, false} {
				nodes, s := newViewed(t)
				for _, n := range nodes[:number] {
					n.replace = func(_ context.Context, state driver.State) (driver.State, error) {
						if described {
							state.Foreign = found
						}
						return driver.State{}, &driver.WrongTypeError{Op: "inspect", Name: state.Name, State: state}
					}
				}
				state, err := s.Inspect(t.Context(), "n")
				var wrong *driver.WrongTypeError
				if is := errors.As(err, &wrong); is != (number >= 2) || err != nil && !is {
					t.Fatalf("on %d of 3 nodes: error %v", number, err)
				}
				if wrong != nil {
					state = wrong.State
				}
				if (state.Foreign != nil) != (wrong != nil && described) {
					t.Errorf("on %d of 3 nodes: %+v", number, withoutNodes(state))
				}
				for i, n := range state.Nodes {
					if (n.State.Foreign != nil) != (i < number && described) || errors.Is(n.Err, driver.ErrWrongType) != (i < number && !described) {
						t.Errorf("on %d of 3 nodes: node %d: %+v", number, i, n)
					}
				}
				all, err := s.InspectAll(t.Context(), []string{"n"})
				if err != nil || (all[0].Foreign != nil) != (number >= 2 && described) {
					t.Errorf("on %d of 3 nodes: InspectAll returns %+v, %v", number, all, err)
				}
			}
		}
	})
}

// The nodes can report different fences for the same revocation. The holder is notified once,
// with a fence not below the lease's, and below the fence of a later lease with the token.
func TestRevokeByTokenWithOtherFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, s := newViewed(t)
		for i, n := range nodes {
			n.addFence = uint64(i)
		}
		var events []driver.Event
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			_ = s.Watch(ctx, clientID, nil, func(e driver.Event) {
				if e.Kind == driver.EventRevoked {
					events = append(events, e)
				}
			})
		}()
		synctest.Wait()
		var last uint64
		for i := range 3 {
			lease := acquireOn(t, s, requestFor("n", mutexToken, 1, 1))
			if !lease.Held || lease.Fence <= last {
				t.Fatalf("%+v, want it held, with a fence above %d", lease, last)
			}
			revoked, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Token: mutexToken, Reason: "see ticket 7"})
			if err != nil || !revoked {
				t.Fatal(revoked, err)
			}
			synctest.Wait()
			if len(events) != i+1 {
				t.Fatalf("events %+v after %d revocations, want one for each", events, i+1)
			}
			e := events[i]
			if e.Token != mutexToken || e.Reason != "see ticket 7" || e.Fence < lease.Fence {
				t.Errorf("event %+v, want the reason, and fence %d at least", e, lease.Fence)
			}
			last = e.Fence
			time.Sleep(time.Millisecond) // fences are times in µs
		}
	})
}

// A name that may not be read on a single node must still be known. If a majority forbids it, it
// must not.
func TestInspectAllOfAForbiddenName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, s := newViewed(t)
		forbidden := errors.New("NOPERM")
		for i, wantErr := range []error{nil, forbidden} {
			nodes[i].replace = func(_ context.Context, s driver.State) (driver.State, error) {
				return driver.State{Name: s.Name, Err: forbidden}, nil
			}
			states, err := s.InspectAll(t.Context(), []string{"a"})
			if err != nil || !errors.Is(states[0].Err, wantErr) || !errors.Is(states[0].Nodes[i].Err, forbidden) {
				t.Errorf("forbidden on %d nodes: %+v, %v", i+1, states, err)
			}
		}
	})
}
