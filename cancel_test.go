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

// A lateStore answers an acquire with an error at once, like a reset connection, and
// delivers it to the store after a delay. It does so with the first tries, and executes
// all others.
type lateStore struct {
	*faulty
	tries int
	delay time.Duration

	mu        sync.Mutex
	delivered int // late tries with an effect
	group     sync.WaitGroup
}

func (l *lateStore) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	l.mu.Lock()
	l.tries--
	resets := l.tries >= 0
	l.mu.Unlock()
	if !resets {
		return l.faulty.Acquire(ctx, r)
	}
	l.group.Go(func() {
		time.Sleep(l.delay)
		if _, err := l.Store.Acquire(context.WithoutCancel(ctx), r); err == nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.delivered++
		}
	})
	return driver.AcquireReply{}, errReset
}

// wantDelivered fails the test unless this many late tries had an effect.
func (l *lateStore) wantDelivered(t *testing.T, want int) {
	t.Helper()
	l.group.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.delivered != want {
		t.Errorf("%d late tries had an effect, want %d: the test proves nothing", l.delivered, want)
	}
}

// wantNothing checks that a name is without holders and waiters. It checks soon after the last try
// can have arrived, and long before a TTL would remove leftovers.
func wantNothing(t *testing.T, s driver.Store, names ...string) {
	t.Helper()
	time.Sleep(1500 * time.Millisecond)
	synctest.Wait()
	for _, name := range names {
		state, err := driver.Complete(s).Inspect(t.Context(), name)
		if err != nil || len(state.Holders) > 0 || state.Waiting > 0 {
			t.Errorf("%q: held by %v, waiters %v, error %v; want nothing", name, state.Holders, state.Waiters, err)
		}
	}
}

// calls maps names to calls that get a lease, or do not, while an earlier try is still on its way.
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
		return c.RWMutex("n").Reader().Lock(ctx, options...)
	},
	"permits": func(ctx context.Context, c *dibs.Client, options ...dibs.Option) (*dibs.Lease, error) {
		return c.Semaphore("n", 3).Permits(2).Lock(ctx, options...)
	},
	"several": func(ctx context.Context, c *dibs.Client, options ...dibs.Option) (*dibs.Lease, error) {
		return c.All([]string{"n", "o"}).Lock(ctx, options...)
	},
}

// An unanswered acquire is delivered after a later acquire was granted and the lease unlocked: it
// must leave nothing behind.
func TestLateAcquireAfterUnlock(t *testing.T) {
	for what, call := range calls {
		for _, tries := range []int{1, 2} {
			for _, delay := range []time.Duration{10 * time.Millisecond, 300 * time.Millisecond, 490 * time.Millisecond} {
				t.Run(fmt.Sprint(what, tries, delay), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						f, good := newFaulty()
						net := &lateStore{faulty: f, tries: tries, delay: delay}
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

// The same after a lost lease, and after Client.Close.
func TestLateAcquireAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		net := &lateStore{faulty: f, tries: 1, delay: 400 * time.Millisecond}
		l := lock(t, open(t, net), "n", dibs.TTL(20*time.Second))
		if released, err := good.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: string(l.Token())}); !released || err != nil {
			t.Fatal(released, err)
		}
		_ = l.Extend(t.Context(), 20*time.Second)
		wantLost(t, l.Unlock(), dibs.ReasonMissing)
		net.wantDelivered(t, 1)
		wantNothing(t, good, "n")
	})
}

func TestLateAcquireAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		net := &lateStore{faulty: f, tries: 1, delay: 400 * time.Millisecond}
		c := dibs.New(net)
		lock(t, c, "n")
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		net.wantDelivered(t, 1)
		wantNothing(t, good, "n")
	})
}

// A try for several names arrives while some are unlocked and held by others, and some are not.
// Unlock still succeeds.
func TestLateAcquireDuringUnlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		net := &lateStore{faulty: f, tries: 1, delay: 300 * time.Millisecond}
		f.set(func(f *faulty) {
			f.release = func(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
				if r.Name != "a" {
					time.Sleep(200 * time.Millisecond)
				}
				return f.Store.Release(ctx, r)
			}
		})
		l, err := open(t, net).All([]string{"a", "b", "c"}).Lock(t.Context())
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

// A later try is answered "busy". The holder unlocks, and the first try gets the name.
func TestLateAcquireAfterBusy(t *testing.T) {
	for what, options := range map[string][]dibs.Option{
		"try":      {dibs.Wait(0)},
		"attempts": {dibs.Attempts(2, time.Millisecond)},
		"wait":     {dibs.Wait(5 * time.Millisecond)},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, good := newFaulty()
				holder := lock(t, open(t, good), "n")
				net := &lateStore{faulty: f, tries: 1, delay: 300 * time.Millisecond}
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

// The first try is executed and its reply lost; the retry is rejected. The call fails, and the
// first try's lock must be released.
func TestRejectedRetryLeavesNothing(t *testing.T) {
	refusal := &driver.UnavailableError{Op: "test", Cause: errors.New("ERR max number of clients reached"), Refused: true}
	for what, call := range calls {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, good := newFaulty()
				tries := 0
				f.set(func(f *faulty) {
					f.acquire = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
						if tries++; tries > 1 {
							return driver.AcquireReply{}, refusal
						}
						if a, err := f.Store.Acquire(ctx, r); err != nil || !a.Held {
							t.Errorf("%+v, %v", a, err)
						}
						return driver.AcquireReply{}, errReset
					}
				})
				_, err := call(t.Context(), open(t, f), dibs.TTL(20*time.Second))
				if !errors.Is(err, refusal.Cause) {
					t.Errorf("error %v, want the rejection", err)
				}
				wantNothing(t, good, "n", "o")
			})
		})
	}
}

// If the only try is rejected, nothing is left and no cancel is sent.
func TestRejectionCancelsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		f.set(func(f *faulty) {
			f.acquire = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
				return driver.AcquireReply{}, &driver.UnavailableError{Op: "test", Refused: true}
			}
			f.cancel = func(context.Context, driver.AcquireRequest) error {
				t.Error("a cancel was sent")
				return nil
			}
		})
		c := open(t, f)
		_, err := c.Mutex("n").Lock(t.Context())
		wantErr(t, err, dibs.ErrUnavailable)
		time.Sleep(2 * time.Second)
	})
}

// A Token is used again after an error: the first call's cancel must not end the second call's
// lease.
func TestTokenReuseAfterTimeout(t *testing.T) {
	for what, call := range calls {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, good := newFaulty()
				c := open(t, f, dibs.TTL(20*time.Second))
				f.hangAll()
				_, err := call(t.Context(), c, dibs.OwnerToken("request-1"))
				wantErr(t, err, dibs.ErrUnavailable)
				f.heal()
				l, err := call(t.Context(), c, dibs.OwnerToken("request-1"))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(25 * time.Second)
				if err := l.Err(); err != nil {
					t.Errorf("the earlier call ended it: %v", err)
				}
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
				wantNothing(t, good, "n", "o")
			})
		})
	}
}

// Cancel requests are delivered as late as possible, while the token is reused again and
// again.
func TestTokenReuseWhileCancelling(t *testing.T) {
	for _, delay := range []time.Duration{time.Millisecond, 30 * time.Millisecond, 700 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, good := newFaulty()
				f.set(func(f *faulty) {
					f.cancel = func(ctx context.Context, r driver.AcquireRequest) error {
						time.Sleep(delay)
						return f.Store.Cancel(context.WithoutCancel(ctx), r)
					}
				})
				c, rival := open(t, f), open(t, good)
				for range 50 {
					other := lock(t, rival, "n")
					_, err := c.Mutex("n").Lock(t.Context(), dibs.OwnerToken("request-1"), dibs.Wait(3*time.Millisecond))
					wantErr(t, err, dibs.ErrBusy)
					if err := other.Unlock(); err != nil {
						t.Fatal(err)
					}
					l := lock(t, c, "n", dibs.OwnerToken("request-1"))
					time.Sleep(2 * time.Second)
					if released, err := good.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: string(l.Token())}); !released || err != nil {
						t.Fatalf("%v, %v: the earlier call ended the lease", released, err)
					}
					wantLost(t, l.Extend(t.Context(), time.Minute), dibs.ReasonMissing)
					_ = l.Unlock()
				}
			})
		})
	}
}

// A late release may arrive when the next call with the token holds the lock.
func TestTokenReuseAfterLateRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
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
		if err := lock(t, c, "n", dibs.OwnerToken("request-1")).Unlock(); err != nil {
			t.Fatal(err)
		}
		l := lock(t, c, "n", dibs.OwnerToken("request-1"))
		time.Sleep(2 * time.Second)
		if state, err := driver.Complete(good).Inspect(t.Context(), "n"); err != nil || len(state.Holders) != 1 {
			t.Errorf("held by %v, %v: the earlier release ended the lease", state.Holders, err)
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// While the store hangs, a call waits for the earlier one for a limited time.
func TestTokenReuseWhileStoreHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		c := open(t, f)
		f.hangAll()
		_, err := c.Mutex("n").TryLock(t.Context(), dibs.OwnerToken("request-1"))
		wantErr(t, err, dibs.ErrUnavailable)
		begin := time.Now()
		_, err = c.Mutex("n").Lock(t.Context(), dibs.OwnerToken("request-1"))
		wantErr(t, err, dibs.ErrUnavailable)
		if d := time.Since(begin); d > 2200*time.Millisecond {
			t.Errorf("returned after %v, want two operation timeouts at most", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = c.Mutex("n").Lock(ctx, dibs.OwnerToken("request-1"))
		wantErr(t, err, dibs.ErrUnavailable, context.DeadlineExceeded)
		if _, err := c.Mutex("other").TryLock(ctx, dibs.OwnerToken("request-2")); err == nil {
			t.Error("a store that hangs granted the lock")
		}
		f.heal()
	})
}

// A change to a reader's weight without an answer may arrive when the next call with the token
// holds the lock for reading.
func TestTokenReuseAfterLateUpgrade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		f.set(func(f *faulty) {
			f.resize = func(ctx context.Context, request driver.AcquireRequest) (driver.AcquireReply, error) {
				go func() {
					time.Sleep(time.Until(request.Until))
					_, _ = f.Full.Resize(context.WithoutCancel(ctx), request)
				}()
				return driver.AcquireReply{}, hang(ctx, request.Until)
			}
		})
		c := open(t, f)
		m := c.RWMutex("n")
		l, err := m.Reader().Lock(t.Context(), dibs.OwnerToken("request-1"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		wantErr(t, l.TryUpgrade(ctx), dibs.ErrUnavailable)
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
		if l, err = m.Reader().Lock(t.Context(), dibs.OwnerToken("request-1")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if r, err := open(t, good).RWMutex("n").Reader().TryLock(t.Context()); err != nil {
			t.Errorf("a second reader: %v", err)
		} else if err := r.Unlock(); err != nil {
			t.Error(err)
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// Each lease has its own token. No token can be derived from another.
func TestTokensAreUnguessable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, good := newFaulty()
		c := open(t, good)
		seen := make(map[string]bool)
		for range 1000 {
			l := lock(t, c, "n", dibs.Label("job"))
			var host, client, own, label string
			var pid int
			if _, err := fmt.Sscanf(spaced(string(l.Token())), "%s %d %s %s %s", &host, &pid, &client, &own, &label); err != nil {
				t.Fatalf("token %q: %v", l.Token(), err)
			}
			own, isMutex := strings.CutPrefix(own, "m-")
			if !isMutex || len(own) != 20 || seen[own] || label != "job" {
				t.Fatalf("token %q: want m- and 20 letters and digits of its own before the label", l.Token())
			}
			seen[own] = true
			if err := l.Unlock(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func spaced(token string) string { return strings.ReplaceAll(token, ":", " ") }

// A release uses the values in Lock's context, but does not end with this context.
func TestReleaseHasContextValuesOfItsCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		f, _ := newFaulty()
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
