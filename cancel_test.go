package dibs_test

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
	"github.com/dibslock/dibs/driver"
)

// A late network answers an acquire with an error at once, as a connection that was
// reset does, and delivers it to the store after a delay. It does so to the first tries,
// and executes all others.
type late struct {
	*faulty
	tries int
	delay time.Duration

	mu        sync.Mutex
	delivered int // late ones that had an effect
	group     sync.WaitGroup
}

func (l *late) Acquire(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
	l.mu.Lock()
	l.tries--
	resets := l.tries >= 0
	l.mu.Unlock()
	if !resets {
		return l.faulty.Acquire(ctx, c)
	}
	l.group.Go(func() {
		time.Sleep(l.delay)
		if _, err := l.Store.Acquire(context.WithoutCancel(ctx), c); err == nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.delivered++
		}
	})
	return driver.AcquireReply{}, errReset
}

// wantDelivered fails the test unless so many late tries had an effect.
func (l *late) wantDelivered(t *testing.T, want int) {
	t.Helper()
	l.group.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.delivered != want {
		t.Errorf("%d late tries had an effect, want %d: this proves nothing", l.delivered, want)
	}
}

// wantNothing checks that nobody holds a name or waits for it, soon after the last try
// can have arrived, and long before a TTL would end what is left.
func wantNothing(t *testing.T, s driver.Store, names ...string) {
	t.Helper()
	time.Sleep(1500 * time.Millisecond)
	synctest.Wait()
	for _, name := range names {
		state, err := s.Inspect(t.Context(), name)
		if err != nil || len(state.Holders) > 0 || state.Waiting > 0 {
			t.Errorf("%q: held by %v, waiters %v, error %v; want nothing", name, state.Holders, state.Waiters, err)
		}
	}
}

// ways to come by a lease, or not to, while an earlier try is still on its way.
var calls = map[string]func(ctx context.Context, c *dibs.Client, options ...dibs.Option) (*dibs.Lease, error){
	"mutex": func(ctx context.Context, c *dibs.Client, options ...dibs.Option) (*dibs.Lease, error) {
		return c.Mutex("n").Lock(ctx, options...)
	},
	"try": func(ctx context.Context, c *dibs.Client, options ...dibs.Option) (*dibs.Lease, error) {
		return c.Mutex("n").TryLock(ctx, options...)
	},
	"attempts": func(ctx context.Context, c *dibs.Client, options ...dibs.Option) (*dibs.Lease, error) {
		return c.Mutex("n").Lock(ctx, append(options, dibs.Attempts(2, time.Millisecond))...)
	},
	"reader": func(ctx context.Context, c *dibs.Client, options ...dibs.Option) (*dibs.Lease, error) {
		return c.RWMutex("n").RLock(ctx, options...)
	},
	"permits": func(ctx context.Context, c *dibs.Client, options ...dibs.Option) (*dibs.Lease, error) {
		return c.Semaphore("n", 3).Acquire(ctx, 2, options...)
	},
	"several": func(ctx context.Context, c *dibs.Client, options ...dibs.Option) (*dibs.Lease, error) {
		return c.All("n", "o").Lock(ctx, options...)
	},
}

// An acquire that was not answered is delivered after a later one was granted and the
// lease unlocked: nothing must be left of it.
func TestLateAcquireAfterUnlock(t *testing.T) {
	for what, call := range calls {
		for _, tries := range []int{1, 2} {
			for _, delay := range []time.Duration{10 * time.Millisecond, 300 * time.Millisecond, 490 * time.Millisecond} {
				t.Run(fmt.Sprint(what, tries, delay), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						f, good := broken()
						net := &late{faulty: f, tries: tries, delay: delay}
						l, err := call(t.Context(), open(t, net), dibs.TTL(20*time.Second))
						if err != nil {
							t.Fatal(err)
						}
						if err := l.Unlock(); err != nil {
							t.Error(err)
						}
						net.wantDelivered(t, tries)
						wantNothing(t, good, "n", "o")
					})
				})
			}
		}
	}
}

// The same after a lease that was lost, and after the client was closed.
func TestLateAcquireAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := broken()
		net := &late{faulty: f, tries: 1, delay: 400 * time.Millisecond}
		l := lock(t, open(t, net), "n", dibs.TTL(20*time.Second))
		if freed, err := good.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: l.Token()}); !freed || err != nil {
			t.Fatal(freed, err)
		}
		_ = l.Extend(t.Context(), 20*time.Second)
		wantLost(t, l.Unlock(), dibs.ReasonTaken)
		net.wantDelivered(t, 1)
		wantNothing(t, good, "n")
	})
}

func TestLateAcquireAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := broken()
		net := &late{faulty: f, tries: 1, delay: 400 * time.Millisecond}
		c := dibs.New(net)
		lock(t, c, "n")
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		net.wantDelivered(t, 1)
		wantNothing(t, good, "n")
	})
}

// A try for several names arrives while some of them are unlocked, and taken by others,
// and some are not: Unlock has succeeded all the same.
func TestLateAcquireAmidUnlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := broken()
		net := &late{faulty: f, tries: 1, delay: 300 * time.Millisecond}
		f.set(func(f *faulty) {
			f.release = func(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
				if r.Name != "a" {
					time.Sleep(200 * time.Millisecond)
				}
				return f.Store.Release(ctx, r)
			}
		})
		l, err := open(t, net).All("a", "b", "c").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rival := open(t, good)
		time.Sleep(150 * time.Millisecond)
		waiting := make(chan *dibs.Lease)
		go func() { waiting <- lock(t, rival, "a") }()
		synctest.Wait()
		if err := l.Unlock(); err != nil {
			t.Errorf("unlock: %v", err)
		}
		if err := (<-waiting).Unlock(); err != nil {
			t.Error(err)
		}
		net.wantDelivered(t, 1)
		wantNothing(t, good, "a", "b", "c")
	})
}

// A later try is answered "busy". The holder unlocks, and the first try takes the name.
func TestLateAcquireAfterBusy(t *testing.T) {
	for what, options := range map[string][]dibs.Option{
		"try":      {dibs.Wait(0)},
		"attempts": {dibs.Attempts(2, time.Millisecond)},
		"wait":     {dibs.Wait(5 * time.Millisecond)},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, good := broken()
				holder := lock(t, open(t, good), "n")
				net := &late{faulty: f, tries: 1, delay: 300 * time.Millisecond}
				_, err := open(t, net).Mutex("n").Lock(t.Context(), options...)
				wantErr(t, err, dibs.ErrBusy)
				if err := holder.Unlock(); err != nil {
					t.Error(err)
				}
				net.wantDelivered(t, 1)
				wantNothing(t, good, "n")
			})
		})
	}
}

// The first try is executed and its reply lost; the retry is refused: the call fails,
// and the lock that the first try took must go.
func TestRefusedRetryLeavesNothing(t *testing.T) {
	refusal := &dibs.UnavailableError{Op: "test", Cause: errors.New("ERR max number of clients reached"), Refused: true}
	for what, call := range calls {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, good := broken()
				tries := 0
				f.set(func(f *faulty) {
					f.acquire = func(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
						if tries++; tries > 1 {
							return driver.AcquireReply{}, refusal
						}
						if a, err := f.Store.Acquire(ctx, c); err != nil || !a.Held {
							t.Errorf("%+v, %v", a, err)
						}
						return driver.AcquireReply{}, errReset
					}
				})
				_, err := call(t.Context(), open(t, f), dibs.TTL(20*time.Second))
				if !errors.Is(err, refusal.Cause) {
					t.Errorf("error %v, want the refusal", err)
				}
				wantNothing(t, good, "n", "o")
			})
		})
	}
}

// A refusal of the only try leaves nothing, and asks for nothing to be undone.
func TestRefusalAloneUndoesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := broken()
		f.set(func(f *faulty) {
			f.acquire = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
				return driver.AcquireReply{}, &dibs.UnavailableError{Op: "test", Refused: true}
			}
			f.abandon = func(context.Context, driver.AcquireRequest) error {
				t.Error("an abandon was sent")
				return nil
			}
		})
		c := open(t, f)
		_, err := c.Mutex("n").Lock(t.Context())
		wantErr(t, err, dibs.ErrUnavailable)
		time.Sleep(2 * time.Second)
	})
}

// A Token is used again after an error: what undoes the first call must not end the
// lease of the second.
func TestTokenAgainAfterSilence(t *testing.T) {
	for what, call := range calls {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, good := broken()
				c := open(t, f, dibs.TTL(20*time.Second))
				f.mute()
				_, err := call(t.Context(), c, dibs.Token("request-1"))
				wantErr(t, err, dibs.ErrUnavailable)
				f.heal()
				l, err := call(t.Context(), c, dibs.Token("request-1"))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(25 * time.Second)
				if err := l.Err(); err != nil {
					t.Errorf("the call before ended it: %v", err)
				}
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
				wantNothing(t, good, "n", "o")
			})
		})
	}
}

// Requests that undo a call are delivered as late as they may be, while the token is
// used again and again.
func TestTokenAgainWhileUndone(t *testing.T) {
	for _, delay := range []time.Duration{time.Millisecond, 30 * time.Millisecond, 700 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, good := broken()
				f.set(func(f *faulty) {
					f.abandon = func(ctx context.Context, c driver.AcquireRequest) error {
						time.Sleep(delay)
						return f.Store.Cancel(context.WithoutCancel(ctx), c)
					}
				})
				c, rival := open(t, f), open(t, good)
				for range 50 {
					other := lock(t, rival, "n")
					_, err := c.Mutex("n").Lock(t.Context(), dibs.Token("request-1"), dibs.Wait(3*time.Millisecond))
					wantErr(t, err, dibs.ErrBusy)
					if err := other.Unlock(); err != nil {
						t.Fatal(err)
					}
					l := lock(t, c, "n", dibs.Token("request-1"))
					time.Sleep(2 * time.Second)
					if freed, err := good.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: l.Token()}); !freed || err != nil {
						t.Fatalf("%v, %v: the call before ended the lease", freed, err)
					}
					wantLost(t, l.Extend(t.Context(), time.Minute), dibs.ReasonTaken)
					_ = l.Unlock()
				}
			})
		})
	}
}

// A release that was not answered may arrive when the next call with the token holds.
func TestTokenAgainAfterALateRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := broken()
		releases := 0
		f.set(func(f *faulty) {
			f.release = func(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
				if releases++; releases > 1 {
					return f.Store.Release(ctx, r)
				}
				go func() {
					time.Sleep(time.Until(r.Until))
					_, _ = f.Store.Release(context.WithoutCancel(ctx), r)
				}()
				return false, errReset
			}
		})
		c := open(t, f)
		if err := lock(t, c, "n", dibs.Token("request-1")).Unlock(); err != nil {
			t.Fatal(err)
		}
		l := lock(t, c, "n", dibs.Token("request-1"))
		time.Sleep(2 * time.Second)
		if state, err := good.Inspect(t.Context(), "n"); err != nil || len(state.Holders) != 1 {
			t.Errorf("held by %v, %v: the release before ended the lease", state.Holders, err)
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// A store that stays mute bounds how long a call waits for the one before.
func TestTokenAgainOnAMuteStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := broken()
		c := open(t, f)
		f.mute()
		_, err := c.Mutex("n").TryLock(t.Context(), dibs.Token("request-1"))
		wantErr(t, err, dibs.ErrUnavailable)
		begin := time.Now()
		_, err = c.Mutex("n").Lock(t.Context(), dibs.Token("request-1"))
		wantErr(t, err, dibs.ErrUnavailable)
		if d := time.Since(begin); d > 2200*time.Millisecond {
			t.Errorf("returned after %v, want two operation timeouts at most", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = c.Mutex("n").Lock(ctx, dibs.Token("request-1"))
		wantErr(t, err, dibs.ErrUnavailable, context.DeadlineExceeded)
		if _, err := c.Mutex("other").TryLock(ctx, dibs.Token("request-2")); err == nil {
			t.Error("a mute store granted")
		}
		f.heal()
	})
}

// A change of a reader's weight that was not answered may arrive when the next call
// with the token reads.
func TestTokenAgainAfterALateUpgrade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := broken()
		f.set(func(f *faulty) {
			f.reweigh = func(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
				go func() {
					time.Sleep(time.Until(c.Until))
					_, _ = f.Store.Resize(context.WithoutCancel(ctx), c)
				}()
				return driver.AcquireReply{}, hang(ctx, c.Until)
			}
		})
		c := open(t, f)
		m := c.RWMutex("n")
		l, err := m.RLock(t.Context(), dibs.Token("request-1"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		wantErr(t, m.TryUpgrade(ctx, l), dibs.ErrUnavailable)
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
		if l, err = m.RLock(t.Context(), dibs.Token("request-1")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if r, err := open(t, good).RWMutex("n").TryRLock(t.Context()); err != nil {
			t.Errorf("a second reader: %v", err)
		} else if err := r.Unlock(); err != nil {
			t.Error(err)
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// Each lease has a token of its own, which leads to no other.
func TestTokensAreUnguessable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, good := broken()
		c := open(t, good)
		seen := make(map[string]bool)
		for range 1000 {
			l := lock(t, c, "n", dibs.Label("job"))
			var host, client, own, label string
			var pid int
			if _, err := fmt.Sscanf(spaced(l.Token()), "%s %d %s %s %s", &host, &pid, &client, &own, &label); err != nil {
				t.Fatalf("token %q: %v", l.Token(), err)
			}
			if len(own) != 24 || seen[own] || label != "job" {
				t.Fatalf("token %q: want 24 letters and digits of its own before the label", l.Token())
			}
			seen[own] = true
			if err := l.Unlock(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func spaced(token string) string { return strings.ReplaceAll(token, ":", " ") }

// A release has the values of the context that was given to Lock, and not its end.
func TestReleaseHasTheValuesOfItsCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		f, _ := broken()
		seen := 0
		f.set(func(f *faulty) {
			f.release = func(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
				seen++
				if ctx.Value(key{}) != "trace 7" || ctx.Err() != nil {
					t.Errorf("value %v, error %v", ctx.Value(key{}), ctx.Err())
				}
				within, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				return f.Store.Release(within, r)
			}
		})
		c := open(t, f)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "trace 7"))
		l, err := c.Mutex("n").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := l.Unlock(); err != nil || seen != 1 {
			t.Errorf("%v after %d releases", err, seen)
		}
	})
}
