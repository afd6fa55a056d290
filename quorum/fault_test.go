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

// Faults of one message: it arrives late, after a later one, or is refused.

var (
	errReset   = &dibs.UnavailableError{Op: "test", Cause: errors.New("connection reset")}
	errRefused = &dibs.UnavailableError{Op: "test", Refused: true, Cause: errors.New("OOM")}
)

// reset has the first message of a verb be reported as lost, and arrive after d all the
// same; or never, if d is zero.
func reset(verb string, d time.Duration) func(string, func()) error {
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

// stall holds messages of a verb up: all that come before go is closed.
func stall(verb string, goes <-chan struct{}) func(string, func()) error {
	return func(v string, _ func()) error {
		if v == verb {
			<-goes
		}
		return nil
	}
}

// weightAt is what a token holds on a node: 0 if alone, -1 if nothing.
func weightAt(t *testing.T, s driver.Store, name, token string) int {
	t.Helper()
	state, err := s.Inspect(t.Context(), name)
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
			t.Errorf("%s: node %d: %q holds %d, want %d (0: alone, -1: nothing)", when, i, token, got, want[i])
		}
	}
}

// Who renews an attached lease does not know what it weighs: a node that lacks its vote is
// asked to give the same as the others.
func TestRepairOfAnAttachedLease(t *testing.T) {
	lockers := map[string]func(*dibs.Client, context.Context, ...dibs.Option) (*dibs.Lease, error){
		"mutex": func(c *dibs.Client, ctx context.Context, o ...dibs.Option) (*dibs.Lease, error) {
			return c.Mutex("n").Lock(ctx, o...)
		},
		"writer": func(c *dibs.Client, ctx context.Context, o ...dibs.Option) (*dibs.Lease, error) {
			return c.RWMutex("n").Lock(ctx, o...)
		},
	}
	for name, lock := range lockers {
		for _, token := range []string{"", "request-42"} {
			t.Run(name+token, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const longest = ttl
					config := quorum.Config{Longest: longest}
					_, stores := memories(3)
					nodes, first := join(t, config, stores...)
					_, second := join(t, config, stores...)
					_, rival := join(t, config, stores...)
					nodes[2].set(func() { nodes[2].dead = errors.New("refused") })
					options := []dibs.Option{dibs.NoRenew()}
					if token != "" {
						options = append(options, dibs.Token(token))
					}
					l, err := lock(first, t.Context(), options...)
					if err != nil {
						t.Fatal(err)
					}
					attached, err := second.Attach("n", l.Token())
					if err != nil {
						t.Fatal(err)
					}
					if err := attached.Extend(t.Context(), ttl); err != nil {
						t.Fatal(err)
					}
					time.Sleep(ttl)
					wantWeights(t, "renewed by another process", stores, "n", l.Token(), 0, 0, 0)
					for i := range stores {
						stores[i].Restart()
						time.Sleep(2 * longest)
						wantWeights(t, fmt.Sprintf("node %d has forgotten it", i), stores, "n", l.Token(), 0, 0, 0)
						if _, err := rival.RWMutex("n").TryRLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
							t.Errorf("a reader beside it: error %v", err)
						}
					}
					if err := attached.Unlock(); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Second)
					nothingLeft(t, stores, "n")
				})
			})
		}
	}
}

// A reader who is attached is not repaired: he may become a writer at any moment.
func TestNoRepairOfAnAttachedReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, stores, first := rig(t, quorum.Config{Trusting: true})
		_, second := join(t, quorum.Config{Trusting: true}, stores...)
		l, err := first.RWMutex("n").RLock(t.Context(), dibs.NoRenew())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // all nodes have voted
		attached, err := second.Attach("n", l.Token())
		if err != nil {
			t.Fatal(err)
		}
		stores[4].Restart()
		if err := attached.Extend(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		wantWeights(t, "renewed by another process", stores, "n", l.Token(), 1, 1, 1, 1, -1)
		attached.Unlock()
	})
}

// What a node says late of a lease that was released, or is being upgraded, repairs
// nothing.
func TestLateWordRepairsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		take func(*dibs.RWMutex, context.Context, ...dibs.Option) (*dibs.Lease, error)
		then func(*testing.T, *dibs.RWMutex, *dibs.Lease)
		want int
	}{
		"released": {(*dibs.RWMutex).Lock, func(t *testing.T, _ *dibs.RWMutex, l *dibs.Lease) {
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		}, -1},
		"reader released": {(*dibs.RWMutex).RLock, func(t *testing.T, _ *dibs.RWMutex, l *dibs.Lease) {
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		}, -1},
		"upgraded": {(*dibs.RWMutex).RLock, func(t *testing.T, m *dibs.RWMutex, l *dibs.Lease) {
			if err := m.TryUpgrade(t.Context(), l); err != nil {
				t.Error(err)
			}
		}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := rig(t, quorum.Config{Trusting: true})
				m := locks.RWMutex("n")
				l, err := c.take(m, t.Context(), dibs.NoRenew())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
				stores[2].Restart()
				word := make(chan struct{})
				nodes[2].set(func() { nodes[2].fault = stall("extend", word) })
				if err := l.Extend(t.Context(), ttl); err != nil {
					t.Fatal(err)
				}
				c.then(t, m, l)
				close(word)
				time.Sleep(500 * time.Millisecond)
				if got := weightAt(t, stores[2], "n", l.Token()); got != c.want {
					t.Errorf("the node that had forgotten it: the token holds %d, want %d (0: alone, -1: nothing)", got, c.want)
				}
				l.Unlock()
				time.Sleep(500 * time.Millisecond)
				nothingLeft(t, stores, "n")
			})
		})
	}
}

// A repair that was not answered is not repeated behind the release.
func TestRepairIsNotRepeated(t *testing.T) {
	for _, arrives := range []time.Duration{0, 300 * time.Millisecond} {
		t.Run(arrives.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := rig(t, quorum.Config{Trusting: true})
				l, err := locks.Mutex("n").Lock(t.Context(), dibs.NoRenew())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
				stores[2].Restart()
				nodes[2].set(func() { nodes[2].fault = reset("acquire", arrives) })
				if err := l.Extend(t.Context(), ttl); err != nil {
					t.Fatal(err)
				}
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
				time.Sleep(1500 * time.Millisecond)
				nothingLeft(t, stores, "n")
			})
		})
	}
}

// A node that has not answered the acquire yet has not lost the lease.
func TestAcquireUnderWayIsNoLoss(t *testing.T) {
	for _, after := range []time.Duration{50 * time.Millisecond, 400 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := rig(t, quorum.Config{Longest: ttl})
				for _, n := range nodes[3:] {
					wake := make(chan struct{})
					time.AfterFunc(after, func() { close(wake) })
					n.fault = stall("acquire", wake)
				}
				l, err := locks.Mutex("n").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				stores[2].Restart()
				time.Sleep(time.Millisecond)
				if err := l.Extend(t.Context(), ttl); err != nil {
					t.Errorf("error %v, want it extended when the acquire has arrived", err)
				}
				time.Sleep(2 * ttl)
				if err := l.Err(); err != nil {
					t.Errorf("error %v, want it held: four nodes know it", err)
				}
				wantWeights(t, "repaired", stores, "n", l.Token(), 0, 0, 0, 0, 0)
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				nothingLeft(t, stores, "n")
			})
		})
	}
}

// A lease that most nodes have lost is given back where it is left.
func TestUnlockOfALostLease(t *testing.T) {
	for restarted := 3; restarted <= 5; restarted++ {
		t.Run(fmt.Sprint(restarted), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, stores, locks := rig(t, quorum.Config{Longest: ttl})
				l, err := locks.Mutex("n").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
				for _, s := range stores[:restarted] {
					s.Restart()
				}
				if err := l.Extend(t.Context(), ttl); !errors.Is(err, dibs.ErrLost) {
					t.Fatalf("error %v, want that it is lost", err)
				}
				if err := l.Unlock(); !errors.Is(err, dibs.ErrLost) {
					t.Errorf("unlock: error %v, want that it was lost", err)
				}
				time.Sleep(time.Second)
				nothingLeft(t, stores, "n")
			})
		})
	}
}

// Unlock of a lease that is held is no loss, also where a few nodes do not know it.
func TestUnlockWithFewVotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, stores, locks := rig(t, quorum.Config{Longest: ttl})
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
		stores[2].Restart()
		if err := l.Unlock(); err != nil {
			t.Errorf("error %v, want none: nobody else can have had it", err)
		}
		time.Sleep(2 * time.Second)
		nothingLeft(t, stores, "n")
	})
}

// An acquire that a node did not answer, and that arrives after a later one was answered
// and the lease released, leaves nothing.
func TestLateAcquireAfterALaterOne(t *testing.T) {
	rivals := map[string]bool{"free": false, "taken by then": true}
	kinds := map[string]func(*dibs.Client) (*dibs.Lease, error){
		"mutex":  func(c *dibs.Client) (*dibs.Lease, error) { return c.Mutex("n").Lock(context.Background()) },
		"reader": func(c *dibs.Client) (*dibs.Lease, error) { return c.RWMutex("n").RLock(context.Background()) },
		"token": func(c *dibs.Client) (*dibs.Lease, error) {
			return c.Mutex("n").Lock(context.Background(), dibs.Token("request-42"))
		},
	}
	for kind, lock := range kinds {
		for name, rival := range rivals {
			t.Run(kind+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					nodes, stores, locks := rig(t, quorum.Config{Trusting: true})
					_, others := join(t, quorum.Config{Trusting: true}, stores...)
					for i, n := range nodes { // the first round fails at most of them
						switch {
						case i < 2:
							n.fault = reset("acquire", 300*time.Millisecond)
						case i < 4:
							n.fault = reset("acquire", 0)
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
						if weightAt(t, s, "n", l.Token()) >= 0 || state.Waiting > 0 {
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

// The same where the later one was refused.
func TestLateAcquireAfterARefusal(t *testing.T) {
	for _, refusing := range []int{3, 4, 5} {
		t.Run(fmt.Sprint(refusing), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := rig(t, quorum.Config{Trusting: true})
				for _, n := range nodes[:refusing] {
					first := reset("acquire", 300*time.Millisecond)
					n.fault = func(verb string, deliver func()) error {
						if err := first(verb, deliver); err != nil || verb != "acquire" {
							return err
						}
						return errRefused
					}
				}
				if l, err := locks.Mutex("n").Lock(t.Context()); !errors.Is(err, dibs.ErrUnavailable) {
					t.Fatalf("%v, error %v, want that it is refused", l, err)
				}
				time.Sleep(2 * time.Second)
				nothingLeft(t, stores, "n")
			})
		})
	}
}

// A release that arrives when the token is in use again does not end the new lease: the
// node's vote does not count before it cannot come any more.
func TestLateReleaseOfATokenInUse(t *testing.T) {
	for _, verb := range []string{"release", "abandon"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, stores := memories(3)
				config := quorum.Config{Trusting: true}
				nodes, locks := join(t, config, stores...)
				_, others := join(t, config, stores...)
				if verb == "abandon" { // what the node has not answered is abandoned, not released
					nodes[0].fault = reset("acquire", time.Millisecond)
				}
				token := dibs.Token("request-42")
				l, err := locks.Mutex("n").Lock(t.Context(), token)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
				nodes[0].set(func() { nodes[0].fault = reset(verb, 400*time.Millisecond) })
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
						t.Errorf("two hold: %v beside fence %d", l, rival.Fence())
						again <- l
					default:
					}
					rival.Unlock()
				}
				(<-again).Unlock()
				time.Sleep(3 * time.Second)
				nothingLeft(t, stores, "n")
			})
		})
	}
}

// A change to a reader that arrives when the lease has become a writer's does not let
// readers in.
func TestLateReweigh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := quorum.Config{Trusting: true}
		nodes, stores, locks := rig(t, config)
		few, other := join(t, config, stores...)
		_, rivals := join(t, config, stores...)
		m := locks.RWMutex("n")
		l, err := m.RLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range few[:2] {
			n.dead = errors.New("refused")
		}
		reader, err := other.RWMutex("n").RLock(t.Context()) // on nodes 2 to 4
		if err != nil {
			t.Fatal(err)
		}
		var seen atomic.Int32
		nodes[0].set(func() {
			nodes[0].fault = func(verb string, deliver func()) error {
				if verb != "reweigh" || seen.Add(1) != 2 { // to a writer, and back
					return nil
				}
				time.AfterFunc(300*time.Millisecond, deliver)
				return errReset
			}
		})
		if err := m.TryUpgrade(t.Context(), l); err == nil {
			t.Fatal("upgraded beside another reader")
		}
		reader.Unlock()
		for _, n := range nodes[3:] {
			n.set(func() { n.dead = errors.New("refused") })
		}
		upgraded := m.TryUpgrade(t.Context(), l)
		time.Sleep(500 * time.Millisecond)
		for _, n := range nodes[3:] {
			n.set(func() { n.dead = nil })
		}
		if r, err := rivals.RWMutex("n").TryRLock(t.Context()); err == nil && upgraded == nil && l.Err() == nil {
			t.Errorf("a reader, fence %d, beside the writer", r.Fence())
		} else if err == nil {
			r.Unlock()
		}
		l.Unlock()
		time.Sleep(3 * time.Second)
		nothingLeft(t, stores, "n")
	})
}

// A token that is used again for another weight holds that weight, also at a node that was
// not told of its release.
func TestTokenOfAnotherWeight(t *testing.T) {
	type locking = func(*dibs.RWMutex, context.Context, ...dibs.Option) (*dibs.Lease, error)
	for name, c := range map[string]struct {
		first, second locking
		want          int
	}{
		"reader, then writer": {(*dibs.RWMutex).RLock, (*dibs.RWMutex).Lock, 0},
		"writer, then reader": {(*dibs.RWMutex).Lock, (*dibs.RWMutex).RLock, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := rig(t, quorum.Config{Trusting: true})
				m := locks.RWMutex("n")
				token := dibs.Token("request-42")
				l, err := c.first(m, t.Context(), token)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond) // all nodes have voted
				for _, n := range nodes[:2] {
					n.set(func() { n.fault = reset("release", 0) })
				}
				if err := l.Unlock(); err != nil {
					t.Fatal(err)
				}
				if l, err = c.second(m, t.Context(), token); err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
				wantWeights(t, "used again", stores, "n", "request-42", c.want, c.want, c.want, c.want, c.want)
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
				time.Sleep(2 * time.Second)
				nothingLeft(t, stores, "n")
			})
		})
	}
}

// A node that refuses a release, or an abandon, is told again.
func TestRefusedRelease(t *testing.T) {
	for _, verb := range []string{"release", "abandon"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := rig(t, quorum.Config{Trusting: true})
				if verb == "abandon" {
					nodes[0].fault = reset("acquire", time.Millisecond)
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
				nothingLeft(t, stores, "n")
			})
		})
	}
}

// lateAnswers is a store whose answer to an abandon comes late.
type lateAnswers struct {
	driver.Store
	by time.Duration
}

func (s *lateAnswers) Cancel(ctx context.Context, c driver.AcquireRequest) error {
	err := s.Store.Cancel(ctx, c)
	time.Sleep(s.by)
	return err
}

// An acquire that arrives between an abandon and its answer leaves nothing.
func TestLateAcquireBeforeTheAnswer(t *testing.T) {
	for _, by := range []time.Duration{350 * time.Millisecond, 900 * time.Millisecond} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, stores, locks := rig(t, quorum.Config{Trusting: true})
				nodes[0].Store = &lateAnswers{stores[0], by}
				nodes[0].fault = reset("acquire", 300*time.Millisecond)
				l, err := locks.Mutex("n").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
				if err := l.Unlock(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				nothingLeft(t, stores, "n")
			})
		})
	}
}
