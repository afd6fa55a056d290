package dibs_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// ranAgainAfter tries every 10 ms until another replica runs the job. It returns the time
// from begin until then.
func ranAgainAfter(t *testing.T, s driver.Store, every time.Duration, begin time.Time) time.Duration {
	t.Helper()
	job := open(t, s).Once("n", every)
	for {
		err := job.Do(t.Context(), func(context.Context) error { return nil })
		if err == nil {
			return time.Since(begin)
		}
		wantErr(t, err, dibs.ErrSkipped, dibs.ErrBusy)
		if time.Since(begin) > 24*time.Hour {
			t.Fatal("the job never runs again")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func wantWithin(t *testing.T, d, from, to time.Duration) {
	t.Helper()
	if d < from || d > to {
		t.Errorf("after %v, want %v to %v", d, from, to)
	}
}

// wantSkipped checks the error for a run done by another process.
func wantSkipped(t *testing.T, err error, why string) {
	t.Helper()
	wantErr(t, err, dibs.ErrSkipped, dibs.ErrBusy)
	var do *dibs.DoError
	var busy *dibs.BusyError
	switch {
	case !errors.As(err, &do) || do.Ran || do.Name != "n" || do.Work != nil:
		t.Errorf("error %+v, want a DoError of n whose function did not run", err)
	case !errors.As(err, &busy) || busy.Holder == "" || !strings.Contains(err.Error(), why):
		t.Errorf("error %v, want a BusyError with a holder and %q", err, why)
	}
}

func TestOnceIsSkippedByTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		begin := time.Now()
		wantErr(t, open(t, s).Once("n", time.Minute).Do(t.Context(), func(ctx context.Context) error {
			if fenceIn(t, ctx) == 0 {
				t.Error("no fence in the context")
			}
			wantSkipped(t, open(t, s).Once("n", time.Minute).Do(t.Context(), func(context.Context) error {
				t.Error("two concurrent runs")
				return nil
			}), "held by ")
			return nil
		}))
		wantSkipped(t, open(t, s).Once("n", time.Minute).Do(t.Context(), func(context.Context) error {
			t.Error("two runs in the interval")
			return nil
		}), "reserved by ")
		if d := time.Since(begin); d != 0 {
			t.Errorf("Do took %v to return without a run", d)
		}
	})
}

// The job does not run again in the interval, from its start, however it ended.
func TestOnceInTheInterval(t *testing.T) {
	failed := errors.New("failed")
	for what, job := range map[string]func(context.Context) error{
		"success": func(context.Context) error { time.Sleep(10 * time.Second); return nil },
		"error":   func(context.Context) error { return failed },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memstore.New()
				begin := time.Now()
				err := open(t, s).Once("n", time.Minute).Do(t.Context(), job)
				if what == "success" && err != nil || what == "error" && !errors.Is(err, failed) {
					t.Error(err)
				}
				wantWithin(t, ranAgainAfter(t, s, time.Minute, begin), time.Minute, time.Minute+20*time.Millisecond)
			})
		})
	}
}

// The interval lasts even if the process crashes at once and the TTL is shorter.
func TestOnceAfterACrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		begin := time.Now()
		job := open(t, f, dibs.TTL(2*time.Second)).Once("n", time.Minute)
		crashed := make(chan struct{})
		go func() {
			defer close(crashed)
			wantErr(t, job.Do(t.Context(), func(ctx context.Context) error {
				f.hangAll()
				<-ctx.Done()
				return context.Cause(ctx)
			}), dibs.ErrLost)
		}()
		synctest.Wait()
		wantWithin(t, ranAgainAfter(t, good, time.Minute, begin), time.Minute, time.Minute+20*time.Millisecond)
		<-crashed
		f.heal()
	})
}

// After a crash later than the interval, the name is free after the TTL.
func TestOnceAfterALateCrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		job := open(t, f, dibs.TTL(2*time.Second)).Once("n", time.Minute)
		var died time.Time
		crashed := make(chan struct{})
		go func() {
			defer close(crashed)
			err := job.Do(t.Context(), func(ctx context.Context) error {
				time.Sleep(3 * time.Minute)
				f.hangAll()
				died = time.Now()
				<-ctx.Done()
				return context.Cause(ctx)
			})
			wantErr(t, err, dibs.ErrLost)
		}()
		synctest.Wait()
		again := ranAgainAfter(t, good, time.Minute, time.Now())
		<-crashed
		wantWithin(t, time.Since(died), time.Second, 2*time.Second+20*time.Millisecond)
		wantWithin(t, again, 3*time.Minute, 3*time.Minute+3*time.Second)
		f.heal()
	})
}

// A job that takes longer than the interval keeps the name while it runs, and not longer.
func TestOnceThatTakesLonger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		begin := time.Now()
		job := open(t, s, dibs.TTL(2*time.Second)).Once("n", 10*time.Second)
		ran := make(chan error)
		go func() {
			err := job.Do(t.Context(), func(ctx context.Context) error {
				time.Sleep(time.Minute)
				return ctx.Err()
			})
			ran <- err
		}()
		synctest.Wait()
		wantWithin(t, ranAgainAfter(t, s, 10*time.Second, begin), time.Minute, time.Minute+20*time.Millisecond)
		wantErr(t, <-ran)
	})
}

// MaxHold limits a hanging job.
func TestOnceWithMaxHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		begin := time.Now()
		job := open(t, s).Once("n", time.Minute, dibs.MaxHold(2*time.Minute))
		ran := make(chan error)
		go func() {
			err := job.Do(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				wantLost(t, context.Cause(ctx), dibs.ReasonMaxHold)
				wantWithin(t, time.Since(begin), 118*time.Second, 2*time.Minute)
				return nil
			})
			ran <- err
		}()
		synctest.Wait()
		go func() { wantErr(t, <-ran, dibs.ErrLost) }()
		wantWithin(t, ranAgainAfter(t, s, time.Minute, begin), 118*time.Second, 2*time.Minute+20*time.Millisecond)
	})
}

// The interval replaces the client's MinHold, in both directions.
func TestOnceIgnoresMinHoldOfTheClient(t *testing.T) {
	for _, hold := range []time.Duration{time.Second, 5 * time.Minute} {
		bubble(t, func(t *testing.T) {
			s := memstore.New()
			begin := time.Now()
			wantErr(t, open(t, s, dibs.MinHold(hold)).Once("n", time.Minute).Do(t.Context(), func(context.Context) error { return nil }))
			wantWithin(t, ranAgainAfter(t, s, time.Minute, begin), time.Minute, time.Minute+20*time.Millisecond)
		})
	}
}

// An ended context is an error, not a skipped job.
func TestOnceWithAnEndedContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		job := open(t, s).Once("n", time.Minute)
		why := errors.New("shut down")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		fn := func(context.Context) error { t.Error("fn was called"); return nil }
		wantErr(t, job.Do(ctx, fn), why)
		wantFree(t, s, "n")

		// The same if it ends during a request answered "busy".
		f := &faulty{Full: driver.Complete(s)}
		lock(t, open(t, s), "n")
		ctx, cancel = context.WithCancelCause(t.Context())
		f.set(func(f *faulty) {
			f.acquire = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				defer cancel(why)
				return f.Store.Acquire(ctx, r)
			}
		})
		err := open(t, f).Once("n", time.Minute).Do(ctx, fn)
		wantErr(t, err, dibs.ErrBusy, why)
		if errors.Is(err, dibs.ErrSkipped) {
			t.Errorf("error %v, want none of a skipped run: the context has ended", err)
		}
		f.heal()
	})
}

func TestOnceWithoutAStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		f.hangAll()
		begin := time.Now()
		err := open(t, f).Once("n", time.Minute).Do(t.Context(), func(context.Context) error { t.Error("fn was called"); return nil })
		wantErr(t, err, dibs.ErrUnavailable)
		wantWithin(t, time.Since(begin), 0, time.Second)
		f.heal()
		waitUntilFree(t, s, "n")
	})
}

func TestBadOnce(t *testing.T) {
	c := open(t, unusedStore{t})
	for what, job := range map[string]*dibs.Once{
		"interval 0":           c.Once("n", 0),
		"negative interval":    c.Once("n", -time.Minute),
		"too short interval":   c.Once("n", driver.MinTTL-1),
		"too long interval":    c.Once("n", driver.MaxReserve+1),
		"the longest interval": c.Once("n", math.MaxInt64),
		"name":                 c.Once("", time.Minute),
		"TTL":                  c.Once("n", time.Minute, dibs.TTL(0)),
		"MinHold":              c.Once("n", time.Minute, dibs.MinHold(time.Minute)),
		"MaxHold":              c.Once("n", time.Minute, dibs.MaxHold(time.Minute-1)),
	} {
		err := job.Do(t.Context(), func(context.Context) error { t.Errorf("%s: fn was called", what); return nil })
		if !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, every := range []time.Duration{driver.MinTTL, driver.MaxReserve} {
		ran := false
		err := open(t, memstore.New()).Once("n", every).Do(t.Context(), func(context.Context) error { ran = true; return nil })
		if !ran || err != nil && !errors.Is(err, dibs.ErrLost) {
			t.Errorf("interval %v: %v, %v", every, ran, err)
		}
	}
}

func TestReentrantOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		inner := 0
		wantErr(t, c.Once("n", time.Minute).Do(t.Context(), func(ctx context.Context) error {
			wantErr(t, c.Once("n", time.Minute).Do(ctx, func(context.Context) error { inner++; return nil }), dibs.ErrReentrant)
			return c.Once("n", time.Minute).Do(ctx, func(context.Context) error { inner++; return nil }, dibs.Reentrant())
		}))
		if inner != 1 {
			t.Errorf("%d inside", inner)
		}
	})
}

// freeAfter returns how long after begin another client gets the name. It starts trying
// shortly before about.
func freeAfter(t *testing.T, s driver.Store, name string, begin time.Time, about time.Duration) time.Duration {
	t.Helper()
	m := open(t, s).Mutex(name)
	for time.Since(begin) < about*3/2 {
		l, err := m.TryLock(t.Context())
		if err == nil {
			wantErr(t, l.Unlock())
			return time.Since(begin)
		}
		wantErr(t, err, dibs.ErrBusy)
		time.Sleep(about / 500)
	}
	t.Fatalf("%q is still held after %v", name, time.Since(begin))
	return 0
}

// A lease ends a little before the TTL in the store. This does not free the name before MinHold, or
// the interval, passes.
func TestMinHoldOutlivesAnExpiredLease(t *testing.T) {
	const long = 10 * time.Minute
	ctx := context.Background()
	untilLost := func(ctx context.Context) error { <-ctx.Done(); return nil }
	work := func(d time.Duration) func(context.Context) error {
		return func(context.Context) error { time.Sleep(d); return nil }
	}
	for what, do := range map[string]func(c *dibs.Client) error{
		"Once that hangs": func(c *dibs.Client) error {
			err := c.Once("n", long, dibs.MaxHold(long)).Do(ctx, untilLost)
			return err
		},
		"Once without renewal": func(c *dibs.Client) error {
			err := c.Once("n", long, dibs.NoRenew()).Do(ctx, work(long-10*time.Second))
			return err
		},
		"Mutex": func(c *dibs.Client) error {
			return c.Mutex("n").Do(ctx, work(long-2*time.Second), dibs.MinHold(long), dibs.NoRenew())
		},
		"Mutex with a token": func(c *dibs.Client) error {
			return c.Mutex("n").Do(ctx, untilLost, dibs.MinHold(long), dibs.NoRenew(), dibs.OwnerToken("job-1"))
		},
		"writer": func(c *dibs.Client) error {
			return c.RWMutex("n").Writer().Do(ctx, untilLost, dibs.MinHold(long), dibs.MaxHold(long))
		},
		"reader": func(c *dibs.Client) error {
			return c.RWMutex("n").Reader().Do(ctx, untilLost, dibs.MinHold(long), dibs.NoRenew())
		},
		"Semaphore": func(c *dibs.Client) error {
			return c.Semaphore("n", 2).Permits(1).Do(ctx, untilLost, dibs.MinHold(long), dibs.MaxHold(long))
		},
		"Set": func(c *dibs.Client) error {
			return c.All([]string{"a", "n"}).Do(ctx, untilLost, dibs.MinHold(long), dibs.MaxHold(long))
		},
		"Election": func(c *dibs.Client) error {
			return c.Election("n").Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return errors.New("ended") }, dibs.MinHold(long), dibs.NoRenew())
		},
	} {
		for _, trouble := range []string{"well", "reply lost", "hangs"} {
			t.Run(what+"/"+trouble, func(t *testing.T) {
				bothModes(t, func(t *testing.T, wrap storeWrapper) {
					f, s := newFaulty()
					begin := time.Now()
					time.AfterFunc(long-15*time.Second, func() { f.failReleases(trouble) })
					wantErr(t, do(open(t, wrap(f))), dibs.ErrLost)
					synctest.Wait()
					time.AfterFunc(2*time.Second, f.heal)
					for _, name := range []string{"n", "a"} {
						if name == "a" && what != "Set" {
							break
						}
						wantWithin(t, freeAfter(t, s, name, begin, long), long, long+5*time.Second)
					}
				})
			})
		}
	}
}

// failReleases makes requests to release a lease fail.
func (f *faulty) failReleases(kind string) {
	switch kind {
	case "hangs":
		f.hangAll()
	case "reply lost":
		f.set(func(f *faulty) {
			f.release = func(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
				_, _ = f.Store.Release(ctx, r)
				return false, errReset
			}
			f.cancel = func(ctx context.Context, request driver.AcquireRequest) error {
				_ = f.Store.Cancel(ctx, request)
				return errReset
			}
		})
	}
}

// The same for the remaining names after a MultiMutex lost a name.
func TestMinHoldOutlivesALostName(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		c := open(t, wrap(s))
		begin := time.Now()
		err := c.All([]string{"a", "b", "n"}).Do(t.Context(), func(ctx context.Context) error {
			time.Sleep(time.Minute)
			if revoked, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: "b", Fence: fenceOf(t, ctx, "b")}); !revoked || err != nil {
				t.Fatal(revoked, err)
			}
			<-ctx.Done()
			return nil
		}, dibs.MinHold(10*time.Minute))
		wantErr(t, err, dibs.ErrLost)
		synctest.Wait()
		wantFree(t, s, "b")
		for _, name := range []string{"a", "n"} {
			wantWithin(t, freeAfter(t, s, name, begin, 10*time.Minute), 10*time.Minute, 10*time.Minute+time.Second)
		}
	})
}

// With RetryFailed, a failed run ends its interval.
func TestRetryFailed(t *testing.T) {
	failed := errors.New("failed")
	for what, test := range map[string]struct {
		options []dibs.Option
		fn      func(ctx context.Context) error
		again   time.Duration // from the run's beginning until another run
	}{
		"success":           {[]dibs.Option{dibs.RetryFailed()}, func(context.Context) error { return nil }, time.Minute},
		"error":             {[]dibs.Option{dibs.RetryFailed()}, func(context.Context) error { return failed }, 0},
		"error after 5s":    {[]dibs.Option{dibs.RetryFailed()}, func(context.Context) error { time.Sleep(5 * time.Second); return failed }, 5 * time.Second},
		"panic":             {[]dibs.Option{dibs.RetryFailed()}, func(context.Context) error { panic("failed") }, 0},
		"exit":              {[]dibs.Option{dibs.RetryFailed()}, func(context.Context) error { runtime.Goexit(); return nil }, 0},
		"error without it":  {nil, func(context.Context) error { return failed }, time.Minute},
		"panic without it":  {nil, func(context.Context) error { panic("failed") }, time.Minute},
		"without a renewal": {[]dibs.Option{dibs.RetryFailed(), dibs.NoRenew()}, func(context.Context) error { return failed }, 0},
		"lost": {[]dibs.Option{dibs.RetryFailed(), dibs.MaxHold(time.Minute)},
			func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, time.Minute},
	} {
		for _, level := range []string{"New", "Once", "Do"} {
			t.Run(what+"/"+level, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					s := memstore.New()
					begin := time.Now()
					var client, lock, call []dibs.Option
					map[string]func(){"New": func() { client = test.options }, "Once": func() { lock = test.options }, "Do": func() { call = test.options }}[level]()
					ended := make(chan any)
					go func() {
						defer close(ended)
						defer func() { _ = recover() }()
						_ = open(t, s, client...).Once("n", time.Minute, lock...).Do(t.Context(), test.fn, call...)
					}()
					<-ended
					wantWithin(t, ranAgainAfter(t, s, time.Minute, begin), test.again, test.again+20*time.Millisecond)
				})
			})
		}
	}
}

// A failed nested run does not end the interval for the outer run, which succeeds.
func TestRetryFailedOfANestedRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		begin := time.Now()
		job := open(t, s).Once("n", time.Minute, dibs.RetryFailed(), dibs.Reentrant())
		failed := errors.New("failed")
		wantErr(t, job.Do(t.Context(), func(ctx context.Context) error {
			wantErr(t, job.Do(ctx, func(context.Context) error { return failed }), failed)
			return nil
		}))
		wantWithin(t, ranAgainAfter(t, s, time.Minute, begin), time.Minute, time.Minute+20*time.Millisecond)
	})
}

// The interval may be much longer than a TTL: for a monthly or yearly job. The store keeps the name
// that long from the beginning, so that it outlives a crash.
func TestOnceWithALongInterval(t *testing.T) {
	const day = 24 * time.Hour
	for _, every := range []time.Duration{7 * day, 30 * day, driver.MaxReserve} {
		bubble(t, func(t *testing.T) {
			s := memstore.New()
			c, other := open(t, s), open(t, s).Once("n", every)
			begin := time.Now()
			wantKept := func(reserved bool) {
				state, err := s.Inspect(t.Context(), "n")
				wantErr(t, err)
				if h := state.Holders[0]; h.Remaining != every-time.Since(begin) || h.Reserved != reserved {
					t.Errorf("interval %v, after %v: %+v, want reserved %v", every, time.Since(begin), h, reserved)
				}
			}
			wantErr(t, c.Once("n", every).Do(t.Context(), func(context.Context) error {
				wantKept(false)
				time.Sleep(time.Hour)
				wantKept(false)
				return nil
			}))
			wantKept(true)
			for _, sleep := range []time.Duration{0, every / 2, every/2 - 2*time.Hour} {
				time.Sleep(sleep)
				wantErr(t, other.Do(t.Context(), nothing), dibs.ErrSkipped)
			}
			time.Sleep(every - time.Since(begin))
			wantErr(t, other.Do(t.Context(), nothing))
		})
	}
}
