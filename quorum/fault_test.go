package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/quorum"
)

// Faults in single messages: a message is late, overtaken by a later message, or refused.

var (
	errReset   = &driver.UnavailableError{Op: "test", Cause: errors.New("connection reset")}
	errRefused = &driver.UnavailableError{Op: "test", Refused: true, Cause: errors.New("OOM")}
)

// resetOnce reports a verb's first message as lost, and delivers it after d; or never, if d is
// zero.
func resetOnce(verb string, d time.Duration) func(string, func()) error {
	var done atomic.Bool
	return func(v string, deliver func()) error {
		if v != verb || done.Swap(true) {
			return nil
		}
		if d > 0 {
			time.AfterFunc(d, deliver)
		}
		return errReset
	}
}

// stall delays a verb's messages until release is closed.
func stall(verb string, release <-chan struct{}) func(string, func()) error {
	return func(v string, _ func()) error {
		if v == verb {
			<-release
		}
		return nil
	}
}

// weightAt returns a token's weight on a node: 0 if it is exclusive, -1 if it holds nothing.
func weightAt(t *testing.T, s driver.Store, name, token string) int {
	t.Helper()
	state, err := driver.Complete(s).Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range state.Holders {
		if h.Token == token {
			return h.Weight
		}
	}
	return -1
}

func wantWeights(t *testing.T, when string, stores []*memstore.Store, name, token string, want ...int) {
	t.Helper()
	for i, s := range stores {
		if got := weightAt(t, s, name, token); got != want[i] {
			t.Errorf("%s: node %d: %q has weight %d, want %d (0: exclusive, -1: not held)", when, i, token, got, want[i])
		}
	}
}

// The process that renews an attached lease has no record of its weight. A node without its vote
// is asked for the same weight as on the others.
func TestRepairOfAnAttachedLease(t *testing.T) {
	lockers := map[string]func(*dibs.Client, context.Context, ...dibs.Option) (*dibs.Lease, error){
		"mutex": func(c *dibs.Client, ctx context.Context, o ...dibs.Option) (*dibs.Lease, error) {
			return c.Mutex("n").Lock(ctx, o...)
		},
		"writer": func(c *dibs.Client, ctx context.Context, o ...dibs.Option) (*dibs.Lease, error) {
			return c.RWMutex("n").Writer().Lock(ctx, o...)
		},
	}
	for name, lock := range lockers {
		for _, token := range []string{"", "request-42"} {
			t.Run(name+token, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const longest = ttl
					config := quorum.MaxTTL(longest)
					_, stores := newNodes(3)
					nodes, first := newClientOf(t, config, stores...)
					_, second := newClientOf(t, config, stores...)
					_, rival := newClientOf(t, config, stores...)
					nodes[2].set(func() { nodes[2].dead = errors.New("refused") })
					options := []dibs.Option{dibs.NoRenew()}
					if token != "" {
						options = append(options, dibs.OwnerToken(token))
					}
					l, err := lock(first, t.Context(), options...)
					if err != nil {
						t.Fatal(err)
					}
					attached, err := second.Attach(t.Context(), l.Handle(), dibs.TTL(ttl))
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(ttl)
					wantWeights(t, "renewed by another process", stores, "n", string(l.Token()), 0, 0, 0)
					for i := range stores {
						stores[i].LoseData()
						time.Sleep(2 * longest)
						wantWeights(t, fmt.Sprintf("node %d was restarted", i), stores, "n", string(l.Token()), 0, 0, 0)
						if _, err := rival.RWMutex("n").Reader().TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
							t.Errorf("concurrent reader: error %v, want ErrBusy", err)
						}
					}
					if err := attached.Unlock(); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Second)
					wantEmpty(t, stores, "n")
				})
			})
		}
	}
}

// An attached reader is not repaired: it can become a writer at any time.
func TestNoRepairOfAnAttachedReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, stores, first := newClient(t, quorum.DurableNodes())
		_, second := newClientOf(t, quorum.DurableNodes(), stores...)
		l, err := first.RWMutex("n").Reader().Lock(t.Context(), dibs.NoRenew())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // all nodes have voted
		stores[4].LoseData()
		attached, err := second.Attach(t.Context(), l.Handle(), dibs.TTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		wantWeights(t, "renewed by another process", stores, "n", string(l.Token()), 1, 1, 1, 1, -1)
		attached.Unlock()
	})
}

func newWriter(ctx context.Context, m *dibs.RWMutex, options ...dibs.Option) (*dibs.Lease, error) {
	return m.Writer().Lock(ctx, options...)
}

func newReader(ctx context.Context, m *dibs.RWMutex, options ...dibs.Option) (*dibs.Lease, error) {
	return m.Reader().Lock(ctx, options...)
}

// A node's late answer about a lease that was released, or is being upgraded, repairs
// nothing.
func TestLateAnswerRepairsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		lock func(context.Context, *dibs.RWMutex, ...dibs.Option) (*dibs.Lease, error)
		then func(*testing.T, *dibs.RWMutex, *dibs.Lease)
		want int
	}{
		"released": {newWriter, func(t *testing.T, _ *dibs.RWMutex, l *dibs.Lease) {
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		}, -1},
		"reader released": {newReader, func(t *testing.T, _ *dibs.RWMutex, l *dibs.Lease) {
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		}, -1},
		"upgraded": {newReader, func(t *testing.T, m *dibs.RWMutex, l *dibs.Lease) {
			if err := l.TryUpgrade(t.Context()); err != nil {
				t.Error(err)
			}
		}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := newClient(t, quorum.DurableNodes())
				m := locks.RWMutex("n")
				l, err := c.lock(t.Context(), m, dibs.NoRenew())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
				stores[2].LoseData()
				answer := make(chan struct{})
				nodes[2].set(func() { nodes[2].fault = stall("extend", answer) })
				if err := l.Extend(t.Context(), ttl); err != nil {
					t.Fatal(err)
				}
				c.then(t, m, l)
				close(answer)
				time.Sleep(500 * time.Millisecond)
				if got := weightAt(t, stores[2], "n", string(l.Token())); got != c.want {
					t.Errorf("restarted node: the token has weight %d, want %d (0: exclusive, -1: not held)", got, c.want)
				}
				l.Unlock()
				time.Sleep(500 * time.Millisecond)
				wantEmpty(t, stores, "n")
			})
		})
	}
}

// A repair without an answer must not be repeated after the release.
func TestRepairIsNotRepeated(t *testing.T) {
	for _, arrives := range []time.Duration{0, 300 * time.Millisecond} {
		t.Run(arrives.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := newClient(t, quorum.DurableNodes())
				l, err := locks.Mutex("n").Lock(t.Context(), dibs.NoRenew())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
				stores[2].LoseData()
				nodes[2].set(func() { nodes[2].fault = resetOnce("acquire", arrives) })
				if err := l.Extend(t.Context(), ttl); err != nil {
					t.Fatal(err)
				}
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
				time.Sleep(1500 * time.Millisecond)
				wantEmpty(t, stores, "n")
			})
		})
	}
}

// A node should not count as having lost the lease before it answered the acquire.
func TestPendingAcquireIsNoLoss(t *testing.T) {
	for _, after := range []time.Duration{50 * time.Millisecond, 400 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := newClient(t, quorum.MaxTTL(ttl))
				for _, n := range nodes[3:] {
					wake := make(chan struct{})
					time.AfterFunc(after, func() { close(wake) })
					n.fault = stall("acquire", wake)
				}
				l, err := locks.Mutex("n").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				stores[2].LoseData()
				time.Sleep(time.Millisecond)
				if err := l.Extend(t.Context(), ttl); err != nil {
					t.Errorf("error %v, want the lease extended once the acquire has arrived", err)
				}
				time.Sleep(2 * ttl)
				if err := l.Err(); err != nil {
					t.Errorf("error %v, want it held: four nodes know it", err)
				}
				wantWeights(t, "repaired", stores, "n", string(l.Token()), 0, 0, 0, 0, 0)
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				wantEmpty(t, stores, "n")
			})
		})
	}
}

// A lease lost by a majority should be released on the nodes that still have it.
func TestUnlockOfALostLease(t *testing.T) {
	for restarted := 3; restarted <= 5; restarted++ {
		t.Run(fmt.Sprint(restarted), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, stores, locks := newClient(t, quorum.MaxTTL(ttl))
				l, err := locks.Mutex("n").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
				for _, s := range stores[:restarted] {
					s.LoseData()
				}
				if err := l.Extend(t.Context(), ttl); !errors.Is(err, dibs.ErrLost) {
					t.Fatalf("error %v, want ErrLost", err)
				}
				if err := l.Unlock(); !errors.Is(err, dibs.ErrLost) {
					t.Errorf("unlock: error %v, want ErrLost", err)
				}
				time.Sleep(time.Second)
				wantEmpty(t, stores, "n")
			})
		})
	}
}

// Unlock of a valid lease should report no loss, even if a few nodes do not have the lease.
func TestUnlockWithFewVotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, stores, locks := newClient(t, quorum.MaxTTL(ttl))
		for _, n := range nodes[3:] {
			n.fault = func(verb string, _ func()) error {
				if verb == "acquire" {
					return errReset
				}
				return nil
			}
		}
		l, err := locks.Mutex("n").Lock(t.Context(), dibs.NoRenew())
		if err != nil {
			t.Fatal(err)
		}
		stores[2].LoseData()
		if err := l.Unlock(); err != nil {
			t.Errorf("error %v, want none: no other owner can have held it", err)
		}
		time.Sleep(2 * time.Second)
		wantEmpty(t, stores, "n")
	})
}

// A late acquire leaves nothing behind, even if it arrives after a later acquire was
// answered and the lease was released.
func TestLateAcquireAfterALaterOne(t *testing.T) {
	rivals := map[string]bool{"free": false, "taken by then": true}
	kinds := map[string]func(*dibs.Client) (*dibs.Lease, error){
		"mutex":  func(c *dibs.Client) (*dibs.Lease, error) { return c.Mutex("n").Lock(context.Background()) },
		"reader": func(c *dibs.Client) (*dibs.Lease, error) { return c.RWMutex("n").Reader().Lock(context.Background()) },
		"token": func(c *dibs.Client) (*dibs.Lease, error) {
			return c.Mutex("n").Lock(context.Background(), dibs.OwnerToken("request-42"))
		},
	}
	for kind, lock := range kinds {
		for name, rival := range rivals {
			t.Run(kind+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					nodes, stores, locks := newClient(t, quorum.DurableNodes())
					_, others := newClientOf(t, quorum.DurableNodes(), stores...)
					for i, n := range nodes { // the first round fails on a majority
						switch {
						case i < 2:
							n.fault = resetOnce("acquire", 300*time.Millisecond)
						case i < 4:
							n.fault = resetOnce("acquire", 0)
						}
					}
					l, err := lock(locks)
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(100 * time.Millisecond)
					if err := l.Unlock(); err != nil {
						t.Fatal(err)
					}
					var other *dibs.Lease
					if rival {
						if other, err = others.Mutex("n").Lock(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(900 * time.Millisecond)
					for i, s := range stores {
						state, err := s.Inspect(t.Context(), "n")
						if err != nil {
							t.Fatal(err)
						}
						if weightAt(t, s, "n", string(l.Token())) >= 0 || state.Waiting > 0 {
							t.Errorf("node %d: %+v, want nothing left of %q", i, state, l.Token())
						}
					}
					if other != nil {
						other.Unlock()
					}
				})
			})
		}
	}
}

// The same if the later acquire was refused.
func TestLateAcquireAfterARefusal(t *testing.T) {
	for _, refusing := range []int{3, 4, 5} {
		t.Run(fmt.Sprint(refusing), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := newClient(t, quorum.DurableNodes())
				for _, n := range nodes[:refusing] {
					first := resetOnce("acquire", 300*time.Millisecond)
					n.fault = func(verb string, deliver func()) error {
						if err := first(verb, deliver); err != nil || verb != "acquire" {
							return err
						}
						return errRefused
					}
				}
				if l, err := locks.Mutex("n").Lock(t.Context()); !errors.Is(err, dibs.ErrUnavailable) {
					t.Fatalf("%v, error %v, want ErrUnavailable", l, err)
				}
				time.Sleep(2 * time.Second)
				wantEmpty(t, stores, "n")
			})
		})
	}
}

// A late release that arrives when the token is in use again should not end the new lease. The
// node's vote should not count until the release can no longer arrive.
func TestLateReleaseOfATokenInUse(t *testing.T) {
	for _, verb := range []string{"release", "cancel"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, stores := newNodes(3)
				config := quorum.DurableNodes()
				nodes, locks := newClientOf(t, config, stores...)
				_, others := newClientOf(t, config, stores...)
				if verb == "cancel" { // an unanswered acquire is cancelled, not released
					nodes[0].fault = resetOnce("acquire", time.Millisecond)
				}
				token := dibs.OwnerToken("request-42")
				l, err := locks.Mutex("n").Lock(t.Context(), token)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
				nodes[0].set(func() { nodes[0].fault = resetOnce(verb, 400*time.Millisecond) })
				if err := l.Unlock(); err != nil {
					t.Fatal(err)
				}
				nodes[2].set(func() { nodes[2].dead = errors.New("refused") })
				again := make(chan *dibs.Lease, 1)
				go func() {
					l, err := locks.Mutex("n").Lock(t.Context(), token, dibs.Wait(10*time.Second))
					if err != nil {
						t.Error(err)
					}
					again <- l
				}()
				time.Sleep(600 * time.Millisecond)
				nodes[2].set(func() { nodes[2].dead = nil })
				rival, err := others.Mutex("n").TryLock(t.Context())
				if err == nil {
					time.Sleep(time.Second)
					select {
					case l := <-again:
						t.Errorf("two holders: %v and fence %d", l, rival.Fence())
						again <- l
					default:
					}
					rival.Unlock()
				}
				(<-again).Unlock()
				time.Sleep(3 * time.Second)
				wantEmpty(t, stores, "n")
			})
		})
	}
}

// A late downgrade that arrives after the lease became a writer's admits no readers.
func TestLateResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := quorum.DurableNodes()
		nodes, stores, locks := newClient(t, config)
		few, other := newClientOf(t, config, stores...)
		_, rivals := newClientOf(t, config, stores...)
		m := locks.RWMutex("n")
		l, err := m.Reader().Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range few[:2] {
			n.dead = errors.New("refused")
		}
		reader, err := other.RWMutex("n").Reader().Lock(t.Context()) // on nodes 2 to 4
		if err != nil {
			t.Fatal(err)
		}
		var seen atomic.Int32
		nodes[0].set(func() {
			nodes[0].fault = func(verb string, deliver func()) error {
				if verb != "resize" || seen.Add(1) != 2 { // to a writer, and back
					return nil
				}
				time.AfterFunc(300*time.Millisecond, deliver)
				return errReset
			}
		})
		if err := l.TryUpgrade(t.Context()); err == nil {
			t.Fatal("upgraded beside another reader")
		}
		reader.Unlock()
		for _, n := range nodes[3:] {
			n.set(func() { n.dead = errors.New("refused") })
		}
		upgraded := l.TryUpgrade(t.Context())
		time.Sleep(500 * time.Millisecond)
		for _, n := range nodes[3:] {
			n.set(func() { n.dead = nil })
		}
		if r, err := rivals.RWMutex("n").Reader().TryLock(t.Context()); err == nil && upgraded == nil && l.Err() == nil {
			t.Errorf("a reader, fence %d, beside a writer", r.Fence())
		} else if err == nil {
			r.Unlock()
		}
		l.Unlock()
		time.Sleep(3 * time.Second)
		wantEmpty(t, stores, "n")
	})
}

// A token reused with another weight gets this weight, even on a node that did not receive its
// release.
func TestTokenOfAnotherWeight(t *testing.T) {
	type locking = func(context.Context, *dibs.RWMutex, ...dibs.Option) (*dibs.Lease, error)
	for name, c := range map[string]struct {
		first, second locking
		want          int
	}{
		"reader, then writer": {newReader, newWriter, 0},
		"writer, then reader": {newWriter, newReader, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := newClient(t, quorum.DurableNodes())
				m := locks.RWMutex("n")
				token := dibs.OwnerToken("request-42")
				l, err := c.first(t.Context(), m, token)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond) // all nodes have voted
				for _, n := range nodes[:2] {
					n.set(func() { n.fault = resetOnce("release", 0) })
				}
				if err := l.Unlock(); err != nil {
					t.Fatal(err)
				}
				if l, err = c.second(t.Context(), m, token); err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
				wantWeights(t, "used again", stores, "n", "request-42", c.want, c.want, c.want, c.want, c.want)
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
				time.Sleep(2 * time.Second)
				wantEmpty(t, stores, "n")
			})
		})
	}
}

// A node that missed an upgrade still has a reader. Its vote must not count for the writer, and
// it must get the upgrade as soon as it can be reached.
func TestNodeThatMissedAnUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, stores := newNodes(3)
		nodes, locks := newClientOf(t, quorum.DurableNodes(), stores...)
		m := locks.RWMutex("n")
		l, err := m.Reader().Lock(t.Context(), dibs.NoRenew(), dibs.TTL(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // all nodes have voted
		nodes[1].set(func() {
			nodes[1].fault = func(verb string, _ func()) error {
				if verb == "resize" {
					return errReset
				}
				return nil
			}
		})
		if err := l.TryUpgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantWeights(t, "upgraded", stores, "n", string(l.Token()), 0, 1, 0)

		nodes[2].set(func() { nodes[2].dead = errors.New("refused") })
		if err := l.Extend(t.Context(), time.Minute); !errors.Is(err, dibs.ErrUnavailable) {
			t.Errorf("extended by a node with a writer and one with a reader: %v, want ErrUnavailable", err)
		}
		nodes[2].set(func() { nodes[2].dead = nil })
		if err := l.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("extended by two nodes with a writer: %v", err)
		}

		nodes[1].set(func() { nodes[1].fault = nil })
		time.Sleep(3 * time.Second) // an earlier resize without an answer may still arrive
		if err := l.Extend(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
		time.Sleep(100 * time.Millisecond)
		wantWeights(t, "reachable again", stores, "n", string(l.Token()), 0, 0, 0)
		nodes[2].set(func() { nodes[2].dead = errors.New("refused") })
		if err := l.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("extended by two nodes, one of which got the upgrade later: %v", err)
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// A release or cancel refused by a node should be repeated.
func TestRefusedRelease(t *testing.T) {
	for _, verb := range []string{"release", "cancel"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := newClient(t, quorum.DurableNodes())
				if verb == "cancel" {
					nodes[0].fault = resetOnce("acquire", time.Millisecond)
				}
				l, err := locks.Mutex("n").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
				var refused atomic.Int32
				nodes[0].set(func() {
					nodes[0].fault = func(v string, _ func()) error {
						if v == verb && refused.Add(1) <= 3 {
							return errRefused
						}
						return nil
					}
				})
				if err := l.Unlock(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(400 * time.Millisecond)
				wantEmpty(t, stores, "n")
			})
		})
	}
}

// A slowCancel is a store whose reply to Cancel is late.
type slowCancel struct {
	driver.Voter
	delay time.Duration
}

func (s *slowCancel) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	err := s.Voter.Cancel(ctx, r)
	time.Sleep(s.delay)
	return err
}

// An acquire that arrives between a cancel and its reply should leave nothing behind.
func TestLateAcquireBeforeTheAnswer(t *testing.T) {
	for _, by := range []time.Duration{350 * time.Millisecond, 900 * time.Millisecond} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := newClient(t, quorum.DurableNodes())
				nodes[0].Voter = &slowCancel{stores[0], by}
				nodes[0].fault = resetOnce("acquire", 300*time.Millisecond)
				l, err := locks.Mutex("n").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
				if err := l.Unlock(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				wantEmpty(t, stores, "n")
			})
		})
	}
}
