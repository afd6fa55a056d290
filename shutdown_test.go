package dibs_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/memstore"
)

// shutDown begins a Shutdown and returns its result.
func shutDown(ctx context.Context, c *dibs.Client) <-chan error {
	result := make(chan error, 1)
	go func() { result <- c.Shutdown(ctx) }()
	synctest.Wait()
	return result
}

// wantRunning requires that a Shutdown is still running.
func wantRunning(t *testing.T, result <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-result:
		t.Fatalf("Shutdown has returned %v", err)
	default:
	}
}

// Shutdown waits for the work under locks, which is renewed and not disturbed. Then it returns at once.
func TestShutdownWaitsForLeases(t *testing.T) {
	for what, hold := range map[string]func(s driver.Store, c *dibs.Client, work func(ctx context.Context) error) error{
		"Do": func(_ driver.Store, c *dibs.Client, work func(ctx context.Context) error) error {
			return c.Mutex("n").Do(context.Background(), work)
		},
		"Once": func(_ driver.Store, c *dibs.Client, work func(ctx context.Context) error) error {
			return c.Once("n", 10*time.Millisecond).Do(context.Background(), work)
		},
		"multi-lock": func(_ driver.Store, c *dibs.Client, work func(ctx context.Context) error) error {
			return c.All([]string{"n", "m"}).Do(context.Background(), work)
		},
		"lease": func(_ driver.Store, c *dibs.Client, work func(ctx context.Context) error) error {
			l, err := c.RWMutex("n").Reader().Lock(context.Background())
			if err != nil {
				return err
			}
			return errors.Join(work(l.Context()), l.Unlock())
		},
		"attached": func(s driver.Store, c *dibs.Client, work func(ctx context.Context) error) error {
			first := dibs.New(s)
			held, err := first.Mutex("n").Lock(context.Background())
			if err != nil {
				return err
			}
			l, err := c.Attach(context.Background(), held.Handle())
			if err != nil {
				return err
			}
			return errors.Join(work(l.Context()), held.Detach(), l.Unlock(), first.Close())
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memstore.New()
				c := dibs.New(s, dibs.TTL(2*time.Second))
				finish, worked := make(chan struct{}), make(chan error, 1)
				go func() {
					worked <- hold(s, c, func(ctx context.Context) error {
						<-finish
						return context.Cause(ctx)
					})
				}()
				synctest.Wait()
				result := shutDown(t.Context(), c)
				time.Sleep(time.Minute)
				wantRunning(t, result)
				second := shutDown(t.Context(), c)
				begin := time.Now()
				close(finish)
				wantErr(t, <-worked)
				wantErr(t, <-result)
				wantErr(t, <-second)
				wantWithin(t, time.Since(begin), 0, 0)
				wantErr(t, c.Shutdown(t.Context()))
				wantErr(t, c.Close())
				wantErr(t, errorOf(c.Mutex("m").Lock(t.Context())), dibs.ErrClosed)
			})
		})
	}
}

// Calls that request or await a lock end with ErrClosed, and leave nothing behind.
func TestShutdownEndsCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		c := dibs.New(f)
		held, other := lock(t, c, "mine"), lock(t, open(t, s), "n")
		calls := map[string]func(context.Context, ...dibs.Option) (*dibs.Lease, error){
			"Lock": c.Mutex("n").Lock, "All": c.All([]string{"m", "n"}).Lock, "reader": c.RWMutex("n").Reader().Lock, "Campaign": c.Election("n").Campaign,
			"Attempts": c.Mutex("n", dibs.Attempts(1000, time.Minute)).Lock,
		}
		ended := make(map[string]chan error)
		for what, call := range calls {
			end := make(chan error, 1)
			ended[what] = end
			go func() { end <- errorOf(call(t.Context())) }()
		}
		synctest.Wait()
		result, begin := shutDown(t.Context(), c), time.Now()
		for what, err := range ended {
			if err := <-err; !errors.Is(err, dibs.ErrClosed) {
				t.Errorf("%s in progress: %v, want ErrClosed", what, err)
			}
		}
		for what, call := range calls {
			if err := errorOf(call(t.Context())); !errors.Is(err, dibs.ErrClosed) {
				t.Errorf("%s: %v, want ErrClosed", what, err)
			}
		}
		wantErr(t, c.Once("free", time.Minute).Do(t.Context(), nothing), dibs.ErrClosed)
		wantErr(t, errorOf(c.Attach(t.Context(), other.Handle())), dibs.ErrClosed)
		wantErr(t, c.Election("free").Run(t.Context(), nothing), dibs.ErrClosed)
		wantWithin(t, time.Since(begin), 0, 0)
		wantErr(t, other.Unlock())
		wantNothing(t, s, "n", "m", "free")
		wantRunning(t, result)
		wantErr(t, held.Unlock())
		wantErr(t, <-result)
	})
}

// Work under a lock may enter it again, and acquire and await further locks, until it is done.
func TestShutdownLetsWorkContinue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := dibs.New(s)
		other := lock(t, open(t, s), "later")
		work := make(chan error, 1)
		var result <-chan error
		go func() {
			work <- c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
				result = shutDown(t.Context(), c)
				if err := c.Mutex("n").Do(ctx, nothing, dibs.Reentrant()); err != nil {
					return err
				}
				if err := c.Mutex("later").Do(ctx, nothing); err != nil { // it waits
					return err
				}
				fence := dibs.WithFence(t.Context(), "of a cohort", 7)
				if err := c.Semaphore("s", 2).Permits(1).Do(fence, nothing); err != nil {
					return err
				}
				// A context without a lease is not the work's, and neither is another Client's
				// context.
				elsewhere := lock(t, open(t, s), "elsewhere").Context()
				for _, ctx := range []context.Context{t.Context(), elsewhere} {
					if err := c.Mutex("m").Do(ctx, nothing); !errors.Is(err, dibs.ErrClosed) {
						t.Errorf("%v, want ErrClosed", err)
					}
				}
				return nil
			})
		}()
		time.Sleep(time.Minute)
		wantErr(t, other.Unlock())
		wantErr(t, <-work)
		wantErr(t, <-result)
	})
}

// A Yield in progress holds no lock, but its work is not done: it gets the lock back. Shutdown begins
// while Yield releases the lock.
func TestShutdownDuringYield(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		f.set(func(f *faulty) {
			f.release = func(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
				time.Sleep(100 * time.Millisecond)
				return f.Full.Release(ctx, r)
			}
		})
		c := dibs.New(f)
		yield, work := make(chan struct{}), make(chan error, 1)
		go func() {
			work <- c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
				<-yield
				if err := carried.Yield(ctx, "n"); err != nil {
					return err
				}
				time.Sleep(time.Minute)
				return ctx.Err()
			})
		}()
		synctest.Wait()
		other := mutex(t, s, "n")
		close(yield)
		synctest.Wait()
		result := shutDown(t.Context(), c)
		time.Sleep(time.Minute)
		wantRunning(t, result)
		unlock(t, other)
		begin := time.Now()
		wantErr(t, <-work)
		wantErr(t, <-result)
		wantWithin(t, time.Since(begin), time.Minute, time.Minute+200*time.Millisecond)
	})
}

// A request answered by the store during Shutdown becomes a lease, and Shutdown waits for it.
func TestShutdownWaitsForRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		f.set(func(f *faulty) {
			f.acquire = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				defer time.Sleep(100 * time.Millisecond)
				return s.Acquire(ctx, r)
			}
		})
		c := dibs.New(f)
		done := make(chan error, 1)
		go func() {
			done <- c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
				time.Sleep(time.Minute)
				return ctx.Err()
			})
		}()
		synctest.Wait()
		wantErr(t, c.Shutdown(t.Context()))
		wantErr(t, <-done)
	})
}

// The end of Shutdown's context closes the Client. The error says which leases were left.
func TestShutdownWithin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		c := dibs.New(f)
		l := lock(t, c, "n")
		why := errors.New("10 s have passed")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, why)
		defer cancel()
		begin := time.Now()
		err := c.Shutdown(ctx)
		wantErr(t, err, why)
		if want := "dibs: shutdown: 1 leases were still held: 10 s have passed"; err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
		wantWithin(t, time.Since(begin), 10*time.Second, 10*time.Second)
		wantLost(t, l.Err(), dibs.ReasonClosed)
		wantFree(t, s, "n")

		c = dibs.New(f)
		lock(t, c, "n")
		f.hangAll()
		wantErr(t, c.Shutdown(ctx), why, dibs.ErrUnavailable)
		f.heal()
		wantErr(t, dibs.New(f).Shutdown(ctx)) // there is nothing to wait for
		wantErr(t, (*dibs.Client)(nil).Shutdown(ctx))
	})
}

// Close during Shutdown ends both.
func TestCloseDuringShutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := dibs.New(memstore.New())
		l := lock(t, c, "n")
		result := shutDown(t.Context(), c)
		wantErr(t, c.Close())
		wantErr(t, <-result)
		wantLost(t, l.Err(), dibs.ReasonClosed)
	})
}

// A lost or detached lease ends no later than an unlocked lease.
func TestShutdownAfterLossAndDetach(t *testing.T) {
	for what, end := range map[string]func(l *dibs.Lease) error{
		"Detach": (*dibs.Lease).Detach,
		"loss":   func(*dibs.Lease) error { return nil },
	} {
		bubble(t, func(t *testing.T) {
			c := dibs.New(memstore.New())
			l := lock(t, c, "n", dibs.MaxHold(time.Minute))
			result, begin := shutDown(t.Context(), c), time.Now()
			wantErr(t, end(l))
			wantErr(t, <-result)
			if took := time.Since(begin); what == "Detach" && took != 0 || took > time.Minute {
				t.Errorf("%s: after %v", what, took)
			}
		})
	}
}

// Elections end with Shutdown: the leader resigns, and its work is awaited. Run returns nil.
func TestShutdownOfElections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := dibs.New(s), open(t, s)
		leads := run(t, c.Election("n", dibs.Observe(dibs.Hooks{
			TermFailed: func(_ context.Context, e dibs.TermFailed) { t.Errorf("TermFailed: %+v", e) },
		})), func(ctx context.Context) error {
			<-ctx.Done()
			if err := context.Cause(ctx); !errors.Is(err, dibs.ErrResigned) {
				t.Errorf("cause %v, want ErrResigned", err)
			}
			time.Sleep(time.Minute)
			return ctx.Err()
		})
		waits := run(t, c.Election("n"), untilEnd)
		next := run(t, other.Election("n"), untilEnd)
		term, err := c.Election("m").Campaign(t.Context())
		wantErr(t, err)
		result, begin := shutDown(t.Context(), c), time.Now()
		if !waits.returned() || waits.err != nil {
			t.Errorf("a candidate: %v, want it ended without an error", waits.err)
		}
		wantErr(t, context.Cause(term.Context()), dibs.ErrResigned)
		wantErr(t, term.Unlock())
		wantRunning(t, result)
		wantErr(t, <-result)
		wantWithin(t, time.Since(begin), time.Minute, time.Minute)
		if !leads.returned() || leads.err != nil {
			t.Errorf("the leader: %v, want it ended without an error", leads.err)
		}
		if next.returned() {
			t.Errorf("the next leader: %v", next.err)
		}
		next.stop()
	})
}

// A term that begins during Shutdown is resigned from the beginning.
func TestTermDuringShutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		f.set(func(f *faulty) {
			f.acquire = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				defer time.Sleep(100 * time.Millisecond)
				return s.Acquire(ctx, r)
			}
		})
		c := dibs.New(f)
		r := run(t, c.Election("n"), untilEnd)
		wantErr(t, c.Shutdown(t.Context()))
		if !r.returned() || r.err != nil {
			t.Errorf("%v, want it ended without an error", r.err)
		}
		wantFree(t, s, "n")
	})
}

// Hooks may call Shutdown.
func TestShutdownInHooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for what, hooks := range map[string]func(c **dibs.Client) dibs.Hooks{
			"Released": func(c **dibs.Client) dibs.Hooks {
				return dibs.Hooks{Released: func(ctx context.Context, _ dibs.Released) { wantErr(t, (*c).Shutdown(ctx)) }}
			},
			"Lost": func(c **dibs.Client) dibs.Hooks {
				return dibs.Hooks{Lost: func(ctx context.Context, _ dibs.Lost) { wantErr(t, (*c).Shutdown(ctx)) }}
			},
		} {
			var c *dibs.Client
			c = dibs.New(memstore.New(), dibs.Observe(hooks(&c)))
			l := lock(t, c, "n", dibs.MaxHold(time.Minute))
			if what == "Released" {
				wantErr(t, l.Unlock())
			}
			time.Sleep(2 * time.Minute)
			wantErr(t, errorOf(c.Mutex("n").Lock(t.Context())), dibs.ErrClosed)
		}
	})
}

// A campaign in work under a lock also ends: its term would begin resigned.
func TestShutdownEndsANestedCampaign(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		leads, err := open(t, s).Election("n").Campaign(t.Context())
		wantErr(t, err)
		c := open(t, s)
		ran := make(chan error, 1)
		go func() { ran <- c.Election("n").Run(dibs.WithFence(t.Context(), "job", 7), untilEnd) }()
		time.Sleep(time.Second)
		begin := time.Now()
		wantErr(t, c.Shutdown(t.Context()))
		wantErr(t, <-ran)
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %v", took)
		}
		wantErr(t, leads.Unlock())
	})
}
