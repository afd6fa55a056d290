package dibs_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// ranAgainAfter tries every 10 ms until another replica runs the job, and returns when
// that was, from begin on.
func ranAgainAfter(t *testing.T, s dibs.Store, every time.Duration, begin time.Time) time.Duration {
	t.Helper()
	job := open(t, s).Once("n", every)
	for {
		ran, err := job.Do(t.Context(), func(context.Context) error { return nil })
		wantErr(t, err)
		if ran {
			return time.Since(begin)
		}
		if time.Since(begin) > 24*time.Hour {
			t.Fatal("never again")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func within(t *testing.T, d, from, to time.Duration) {
	t.Helper()
	if d < from || d > to {
		t.Errorf("after %v, want %v to %v", d, from, to)
	}
}

func TestOnceIsSkippedByTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		begin := time.Now()
		ran, err := open(t, s).Once("n", time.Minute).Do(t.Context(), func(ctx context.Context) error {
			if dibs.Fence(ctx) == 0 {
				t.Error("no fence in the context")
			}
			ran, err := open(t, s).Once("n", time.Minute).Do(t.Context(), func(context.Context) error {
				t.Error("it runs twice at a time")
				return nil
			})
			if ran || err != nil {
				t.Errorf("while it runs: %v, %v", ran, err)
			}
			return nil
		})
		if !ran || err != nil {
			t.Errorf("%v, %v", ran, err)
		}
		ran, err = open(t, s).Once("n", time.Minute).Do(t.Context(), func(context.Context) error {
			t.Error("it runs twice in the interval")
			return nil
		})
		if ran || err != nil {
			t.Errorf("after it ran: %v, %v", ran, err)
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("it took %v to learn that it is somebody else's", d)
		}
	})
}

// Nobody runs it for the interval, from its start, however it ended.
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
				ran, err := open(t, s).Once("n", time.Minute).Do(t.Context(), job)
				if !ran || what == "success" && err != nil || what == "error" && !errors.Is(err, failed) {
					t.Errorf("%v, %v", ran, err)
				}
				within(t, ranAgainAfter(t, s, time.Minute, begin), time.Minute, time.Minute+20*time.Millisecond)
			})
		})
	}
}

// The interval is kept also if the process dies at once, though its TTL is shorter.
func TestOnceAfterACrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := broken()
		begin := time.Now()
		job := open(t, f, dibs.TTL(2*time.Second)).Once("n", time.Minute)
		crashed := make(chan struct{})
		go func() {
			defer close(crashed)
			ran, err := job.Do(t.Context(), func(ctx context.Context) error {
				f.mute()
				<-ctx.Done()
				return context.Cause(ctx)
			})
			if !ran {
				t.Error("it did not run")
			}
			wantErr(t, err, dibs.ErrLost)
		}()
		synctest.Wait()
		within(t, ranAgainAfter(t, good, time.Minute, begin), time.Minute, time.Minute+20*time.Millisecond)
		<-crashed
		f.heal()
	})
}

// After a crash beyond the interval, the TTL is what it costs.
func TestOnceAfterALateCrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := broken()
		job := open(t, f, dibs.TTL(2*time.Second)).Once("n", time.Minute)
		var died time.Time
		crashed := make(chan struct{})
		go func() {
			defer close(crashed)
			_, err := job.Do(t.Context(), func(ctx context.Context) error {
				time.Sleep(3 * time.Minute)
				f.mute()
				died = time.Now()
				<-ctx.Done()
				return context.Cause(ctx)
			})
			wantErr(t, err, dibs.ErrLost)
		}()
		synctest.Wait()
		again := ranAgainAfter(t, good, time.Minute, time.Now())
		<-crashed
		within(t, time.Since(died), time.Second, 2*time.Second+20*time.Millisecond)
		within(t, again, 3*time.Minute, 3*time.Minute+3*time.Second)
		f.heal()
	})
}

// A job that takes longer than the interval keeps the name while it runs, and not
// for longer.
func TestOnceThatTakesLonger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		begin := time.Now()
		job := open(t, s, dibs.TTL(2*time.Second)).Once("n", 10*time.Second)
		ran := make(chan error)
		go func() {
			_, err := job.Do(t.Context(), func(ctx context.Context) error {
				time.Sleep(time.Minute)
				return ctx.Err()
			})
			ran <- err
		}()
		synctest.Wait()
		within(t, ranAgainAfter(t, s, 10*time.Second, begin), time.Minute, time.Minute+20*time.Millisecond)
		wantErr(t, <-ran)
	})
}

// A job that hangs is bounded by MaxHold.
func TestOnceWithMaxHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		begin := time.Now()
		job := open(t, s).Once("n", time.Minute, dibs.MaxHold(2*time.Minute))
		ran := make(chan error)
		go func() {
			_, err := job.Do(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				wantLost(t, context.Cause(ctx), dibs.MaxHeld)
				within(t, time.Since(begin), 118*time.Second, 2*time.Minute)
				return nil
			})
			ran <- err
		}()
		synctest.Wait()
		go func() { wantErr(t, <-ran, dibs.ErrLost) }()
		within(t, ranAgainAfter(t, s, time.Minute, begin), 118*time.Second, 2*time.Minute+20*time.Millisecond)
	})
}

// MinHold may lengthen the interval, and does not shorten it.
func TestOnceWithMinHold(t *testing.T) {
	for hold, want := range map[time.Duration]time.Duration{time.Second: time.Minute, 5 * time.Minute: 5 * time.Minute} {
		bubble(t, func(t *testing.T) {
			s := memstore.New()
			begin := time.Now()
			ran, err := open(t, s).Once("n", time.Minute, dibs.MinHold(hold)).Do(t.Context(), func(context.Context) error { return nil })
			if !ran || err != nil {
				t.Errorf("%v, %v", ran, err)
			}
			within(t, ranAgainAfter(t, s, time.Minute, begin), want, want+20*time.Millisecond)
		})
	}
}

// That the context has ended says nothing of the job: it is no skip.
func TestOnceWithAnEndedContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		job := open(t, s).Once("n", time.Minute)
		why := errors.New("shut down")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		fn := func(context.Context) error { t.Error("it runs"); return nil }
		ran, err := job.Do(ctx, fn)
		if ran {
			t.Error("it says that it ran")
		}
		wantErr(t, err, dibs.ErrBusy, why)
		free(t, s, "n")

		// Also if it ends while the store is asked, and says that the job is another's.
		f := &faulty{Store: s}
		lock(t, open(t, s), "n")
		ctx, cancel = context.WithCancelCause(t.Context())
		f.set(func(f *faulty) {
			f.acquire = func(ctx context.Context, c dibs.Claim) (dibs.Answer, error) {
				defer cancel(why)
				return f.Store.Acquire(ctx, c)
			}
		})
		ran, err = open(t, f).Once("n", time.Minute).Do(ctx, fn)
		if ran {
			t.Error("it says that it ran")
		}
		wantErr(t, err, dibs.ErrBusy, why)
		f.heal()
	})
}

func TestOnceWithoutAStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := broken()
		f.mute()
		begin := time.Now()
		ran, err := open(t, f).Once("n", time.Minute).Do(t.Context(), func(context.Context) error { t.Error("it runs"); return nil })
		if ran {
			t.Error("it says that it ran")
		}
		wantErr(t, err, dibs.ErrUnavailable)
		within(t, time.Since(begin), 0, time.Second)
		f.heal()
		eventually(t, s, "n")
	})
}

func TestBadOnce(t *testing.T) {
	c := open(t, untouched{t})
	for what, job := range map[string]*dibs.Once{
		"interval 0":           c.Once("n", 0),
		"negative interval":    c.Once("n", -time.Minute),
		"too short interval":   c.Once("n", dibs.MinTTL-1),
		"too long interval":    c.Once("n", dibs.MaxTTL+1),
		"the longest interval": c.Once("n", math.MaxInt64),
		"name":                 c.Once("", time.Minute),
		"TTL":                  c.Once("n", time.Minute, dibs.TTL(0)),
		"MinHold":              c.Once("n", time.Minute, dibs.MinHold(dibs.MaxTTL+1)),
		"MaxHold":              c.Once("n", time.Minute, dibs.MaxHold(time.Minute-1)),
	} {
		ran, err := job.Do(t.Context(), func(context.Context) error { t.Errorf("%s: it runs", what); return nil })
		if ran || !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%s: %v, %v", what, ran, err)
		}
	}
	for _, every := range []time.Duration{dibs.MinTTL, dibs.MaxTTL} {
		ran, err := open(t, memstore.New()).Once("n", every).Do(t.Context(), func(context.Context) error { return nil })
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
		ran, err := c.Once("n", time.Minute).Do(t.Context(), func(ctx context.Context) error {
			ran, err := c.Once("n", time.Minute).Do(ctx, func(context.Context) error { inner++; return nil })
			if ran {
				t.Error("it says that it ran")
			}
			wantErr(t, err, dibs.ErrReentrant)
			ran, err = c.Once("n", time.Minute).Do(ctx, func(context.Context) error { inner++; return nil }, dibs.Reentrant())
			if !ran || err != nil {
				t.Errorf("%v, %v", ran, err)
			}
			return nil
		})
		if !ran || err != nil || inner != 1 {
			t.Errorf("%v, %v; %d inside", ran, err, inner)
		}
	})
}
