package dibs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// A campaign is a Run in progress.
type campaign struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error
}

// run campaigns in the background, at most until the test ends.
func run(t *testing.T, e *dibs.Election, fn func(ctx context.Context) error, options ...dibs.Option) *campaign {
	ctx, cancel := context.WithCancelCause(t.Context())
	r := &campaign{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = e.Run(ctx, fn, options...)
	}()
	synctest.Wait()
	return r
}

// stop ends the campaign, and waits for its end.
func (r *campaign) stop() {
	r.cancel(nil)
	<-r.done
}

func (r *campaign) returned() bool {
	synctest.Wait()
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// untilEnd is work that runs until its context ends, and returns the context's error.
func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// The candidates lead in turn, a single candidate at a time, and then queue behind the others. The
// terms' numbers grow.
func TestOneLeaderAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var mu sync.Mutex
		var order []int
		leading, last := 0, uint64(0)
		var all []*campaign
		for i := range 4 {
			e := open(t, s).Election("n")
			all = append(all, run(t, e, func(ctx context.Context) error {
				mu.Lock()
				if leading++; leading > 1 {
					t.Errorf("%d leaders", leading)
				}
				if fenceIn(t, ctx) <= last {
					t.Errorf("term %d after %d", fenceIn(t, ctx), last)
				}
				last = fenceIn(t, ctx)
				order = append(order, i)
				mu.Unlock()
				time.Sleep(10 * time.Second)
				if !e.Resign() {
					t.Error("Resign reported a term after its end")
				}
				<-ctx.Done()
				time.Sleep(time.Second) // work that takes a while
				mu.Lock()
				leading--
				mu.Unlock()
				return ctx.Err()
			}))
		}
		time.Sleep(11*16*time.Second - time.Second)
		synctest.Wait()
		mu.Lock()
		for i, got := range order {
			if got != i%4 {
				t.Fatalf("order of leaders %v, want each in turn", order)
			}
		}
		if len(order) != 16 {
			t.Errorf("%d terms of 11s in %v", len(order), 11*16*time.Second)
		}
		mu.Unlock()
		for _, r := range all {
			r.cancel(nil)
		}
		for _, r := range all {
			r.stop()
		}
	})
}

// A leader that cannot reach the store loses its term before another candidate leads.
func TestLeaderLosesTermBeforeAnotherLeads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		var ended, led time.Time
		terms := 0
		leader := run(t, open(t, f, dibs.TTL(2*time.Second)).Election("n"), func(ctx context.Context) error {
			if terms++; terms > 1 {
				return untilEnd(ctx)
			}
			<-ctx.Done()
			ended = time.Now()
			wantLost(t, context.Cause(ctx), dibs.ReasonExpired)
			return nil // in a lost term
		})
		follower := run(t, open(t, good).Election("n"), func(ctx context.Context) error {
			led = time.Now()
			return untilEnd(ctx)
		})
		time.Sleep(time.Minute)
		f.hangAll()
		dead := time.Now()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if ended.IsZero() || led.IsZero() || led.Sub(ended) < 40*time.Millisecond {
			t.Errorf("ended at %v, the next one led at %v; want 40ms between", ended, led)
		}
		wantWithin(t, led.Sub(dead), time.Second, 2*time.Second+10*time.Millisecond)
		f.heal()
		if leader.returned() {
			t.Errorf("no further campaign: %v", leader.err)
		}
		time.Sleep(time.Minute)
		follower.stop()
		synctest.Wait()
		if terms != 2 {
			t.Errorf("%d terms of the first candidate, want more", terms)
		}
		leader.stop()
	})
}

// A moment is a time that one goroutine sets and another reads.
type moment struct{ at atomic.Int64 }

func (m *moment) record()        { m.at.Store(time.Now().UnixNano()) }
func (m *moment) recorded() bool { return m.at.Load() != 0 }

// Resign ends the work's context. The next candidate leads as soon as the work returned. The
// resigned process campaigns again, behind the waiting candidates.
func TestResign(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		e := c.Election("n")
		if e.Resign() {
			t.Error("Resign reported a term without one")
		}
		var returned, led moment
		var terms atomic.Int32
		first := run(t, e, func(ctx context.Context) error {
			first := terms.Add(1) == 1
			<-ctx.Done()
			if first && !errors.Is(context.Cause(ctx), dibs.ErrResigned) {
				t.Errorf("cause %v, want ErrResigned", context.Cause(ctx))
			}
			time.Sleep(3 * time.Second)
			returned.record()
			return nil // in a resigned term
		})
		second := open(t, s).Election("n")
		next := run(t, second, func(ctx context.Context) error { led.record(); return untilEnd(ctx) })
		if second.Resign() {
			t.Error("Resign reported a term while another candidate leads")
		}
		if !e.Resign() {
			t.Error("no term to resign from")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if led.recorded() {
			t.Error("the next candidate leads before the work has returned")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if !led.recorded() || led.at.Load() != returned.at.Load() {
			t.Errorf("the next candidate did not lead as soon as the work returned")
		}
		if first.returned() {
			t.Fatalf("no further campaign: %v", first.err)
		}
		next.stop()
		synctest.Wait()
		if terms.Load() != 2 {
			t.Errorf("%d terms, want more", terms.Load())
		}
		first.stop()
		wantFree(t, s, "n")
	})
}

// Resign ends the contexts for a term's lease, even those created later, but not the lease.
func TestResignFromACampaign(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s, dibs.TTL(2*time.Second))
		e, other := c.Election("n"), lock(t, c, "m").Context()
		l, err := e.Campaign(t.Context())
		wantErr(t, err)
		ctx := l.Context()
		once := e.Resign()
		if twice := e.Resign(); !once || !twice {
			t.Error("no term to resign from")
		}
		if !errors.Is(context.Cause(ctx), dibs.ErrResigned) || !errors.Is(context.Cause(l.Context()), dibs.ErrResigned) {
			t.Errorf("causes %v, %v, want ErrResigned", context.Cause(ctx), context.Cause(l.Context()))
		}
		time.Sleep(time.Minute)
		wantErr(t, l.Err()) // renewed until it is released
		wantErr(t, other.Err())
		wantBusy(t, s, "n")
		wantErr(t, l.Unlock())
		wantFree(t, s, "n")
		if e.Resign() {
			t.Error("Resign reported a term without one")
		}
	})
}

// The store gets the term at once, so that others can read its number.
func TestTermIsStoredAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		e := open(t, f).Election("n")
		l, err := e.Campaign(t.Context())
		wantErr(t, err)
		synctest.Wait()
		if calls, _ := f.extendCalls(); calls != 1 {
			t.Errorf("%d renewals at once, want 1", calls)
		}
		wantErr(t, l.Unlock())
	})
}

func TestRunEndsWithItsWork(t *testing.T) {
	failed := errors.New("failed")
	own, cancel := context.WithCancel(context.Background())
	cancel()
	for what, end := range map[string]struct {
		fn   func(ctx context.Context) error
		want error
	}{
		"nil":                       {func(context.Context) error { return nil }, nil},
		"an error":                  {func(context.Context) error { return failed }, failed},
		"another context has ended": {func(context.Context) error { return own.Err() }, context.Canceled},
		"a loss of another lease":   {func(context.Context) error { return &dibs.LostError{Name: "m"} }, dibs.ErrLost},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memstore.New()
				r := run(t, open(t, s).Election("n"), end.fn)
				if !r.returned() {
					t.Fatal("Run has not returned")
				}
				if !errors.Is(r.err, end.want) {
					t.Errorf("error %v, want %v", r.err, end.want)
				}
				wantFree(t, s, "n")
			})
		})
	}
}

// An error that reports more than its context's end should end Run, even after the term. An error
// that reports only the end should not.
func TestErrorsOfAnEndedTerm(t *testing.T) {
	failed := errors.New("failed")
	for what, end := range map[string]struct {
		err  func(ctx context.Context) error
		over bool
	}{
		"nil":               {func(context.Context) error { return nil }, false},
		"Err":               {context.Context.Err, false},
		"Cause":             {context.Cause, false},
		"Err, wrapped":      {func(ctx context.Context) error { return fmt.Errorf("save: %w", ctx.Err()) }, false},
		"both":              {func(ctx context.Context) error { return errors.Join(ctx.Err(), context.Cause(ctx)) }, false},
		"both, wrapped":     {func(ctx context.Context) error { return fmt.Errorf("%w, %w", ctx.Err(), context.Cause(ctx)) }, false},
		"a deadline":        {func(context.Context) error { return context.DeadlineExceeded }, false},
		"a failure":         {func(context.Context) error { return failed }, true},
		"a failure as well": {func(ctx context.Context) error { return errors.Join(ctx.Err(), failed) }, true},
		"a failure, caused": {func(ctx context.Context) error { return fmt.Errorf("%w: %w", failed, context.Cause(ctx)) }, true},
	} {
		for how, stop := range map[string]func(t *testing.T, s driver.Store, e *dibs.Election){
			"resigned": func(t *testing.T, _ driver.Store, e *dibs.Election) { e.Resign() },
			"lost": func(t *testing.T, s driver.Store, e *dibs.Election) {
				leader, err := e.Leader(t.Context())
				wantErr(t, err)
				_, err = driver.Complete(s).Revoke(t.Context(), driver.RevokeRequest{Name: "n", Fence: leader.Term})
				wantErr(t, err)
			},
		} {
			t.Run(what+", "+how, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					s := memstore.New()
					e := open(t, s).Election("n")
					terms := 0
					r := run(t, e, func(ctx context.Context) error {
						if terms++; terms == 2 {
							return untilEnd(ctx)
						}
						<-ctx.Done()
						return end.err(ctx)
					})
					stop(t, s, e)
					time.Sleep(time.Second)
					if over := r.returned(); over != end.over || (terms == 2) == end.over {
						t.Errorf("returned: %v after %d terms, want %v", over, terms, end.over)
					}
					if end.over {
						wantErr(t, r.err, failed)
					}
					r.stop()
				})
			})
		}
	}
}

// The end of its context ends Run without an error, at any point.
func TestRunEndsWithItsContext(t *testing.T) {
	why := errors.New("shut down")
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		leads := run(t, open(t, s).Election("n"), func(ctx context.Context) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), why) {
				t.Errorf("cause %v, want %v", context.Cause(ctx), why)
			}
			return ctx.Err()
		})
		never := func(context.Context) error { t.Error("fn was called"); return nil }
		waits := run(t, open(t, s).Election("n"), never)
		f.set(func(f *faulty) {
			f.acquire = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
				return driver.AcquireReply{}, &driver.UnavailableError{Op: "test", Refused: true}
			}
		})
		pauses := run(t, open(t, f).Election("n"), never)
		f.hangAll()
		inRequest := run(t, open(t, f).Election("n"), never)
		begin := time.Now()
		for what, r := range map[string]*campaign{"waits": waits, "pauses": pauses, "requests": inRequest, "leads": leads} {
			if r.returned() {
				t.Errorf("campaign in %q: %v", what, r.err)
			}
		}
		for _, r := range []*campaign{waits, pauses, inRequest, leads} {
			r.cancel(why)
			<-r.done
			wantErr(t, r.err)
		}
		wantWithin(t, time.Since(begin), 0, 0)
		f.heal()
		waitUntilFree(t, s, "n")

		ended := run(t, open(t, s).Election("n"), untilEnd)
		ended.cancel(why)
		<-ended.done
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		wantErr(t, open(t, s).Election("n").Run(ctx, never))
		wantErr(t, open(t, s).Election("n").Run(ctx, never, dibs.TTL(0)), dibs.ErrInvalid)
	})
}

// After store failures the pauses grow from 50 ms to 5 s, and the hook is called. After a long term
// they start at 50 ms again.
func TestRunSurvivesStoreFailures(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		why := errors.New("READONLY")
		refuse := func(f *faulty) {
			f.acquire = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
				return driver.AcquireReply{}, &driver.UnavailableError{Op: "acquire", Name: "n", Cause: why, Refused: true}
			}
		}
		f.set(refuse)
		var pauses []time.Duration
		var at []time.Time
		e := open(t, f).Election("n", dibs.Observe(dibs.Hooks{TermFailed: func(_ context.Context, c dibs.TermFailed) {
			if c.Name != "n" || !errors.Is(c.Err, dibs.ErrUnavailable) || !errors.Is(c.Err, why) {
				t.Errorf("%+v", c)
			}
			pauses, at = append(pauses, c.RetryIn), append(at, time.Now())
		}}))
		led := 0
		r := run(t, e, func(ctx context.Context) error { led++; return untilEnd(ctx) })
		time.Sleep(30 * time.Second)
		synctest.Wait()
		for i, again := range pauses {
			if want := min(50*time.Millisecond<<i, 5*time.Second); again != want {
				t.Errorf("pauses %v, want 50ms, and twice as long each time, to 5s", pauses)
				break
			}
			if i > 0 && at[i].Sub(at[i-1]) != pauses[i-1] {
				t.Errorf("pause reported %v, measured %v", pauses[i-1], at[i].Sub(at[i-1]))
			}
		}
		if led != 0 || len(pauses) < 10 {
			t.Errorf("%d terms, %d failures", led, len(pauses))
		}
		f.heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		if led != 1 {
			t.Errorf("%d terms when the store is back", led)
		}
		pauses = nil
		f.set(refuse)
		e.Resign()
		time.Sleep(70 * time.Millisecond)
		synctest.Wait()
		if len(pauses) == 0 || pauses[0] > 100*time.Millisecond {
			t.Errorf("pauses %v after a long term, want short ones again", pauses)
		}
		f.heal()
		r.stop()
	})
}

// Errors that no retry can fix end Run at once, and fn is not called.
func TestRunThatCannotSucceed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		never := func(context.Context) error { t.Error("fn was called"); return nil }
		begin := time.Now()
		bad := open(t, unusedStore{t})
		wantErr(t, bad.Election("").Run(t.Context(), never), dibs.ErrInvalid)
		wantErr(t, bad.Election("n", dibs.TTL(0)).Run(t.Context(), never), dibs.ErrInvalid)
		wantErr(t, bad.Election("n").Run(t.Context(), never, dibs.TTL(0)), dibs.ErrInvalid)

		f, s := newFaulty()
		f.set(func(f *faulty) {
			f.acquire = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
				return driver.AcquireReply{}, fmt.Errorf("%w: a list", dibs.ErrWrongType)
			}
		})
		wantErr(t, open(t, f).Election("n").Run(t.Context(), never), dibs.ErrWrongType)

		c := open(t, s)
		wantErr(t, c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			return c.Election("n").Run(ctx, never)
		}), dibs.ErrReentrant)
		wantErr(t, c.Close())
		wantErr(t, c.Election("n").Run(t.Context(), never), dibs.ErrClosed)
		wantWithin(t, time.Since(begin), 0, 0)
	})
}

// Close ends a term with ErrLost, and Run with ErrClosed.
func TestCloseEndsACampaign(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, s), open(t, s)
		r := run(t, c.Election("n"), func(ctx context.Context) error {
			<-ctx.Done()
			wantLost(t, context.Cause(ctx), dibs.ReasonClosed)
			return context.Cause(ctx)
		})
		waits := run(t, other.Election("n"), untilEnd)
		wantErr(t, c.Close())
		<-r.done
		wantErr(t, r.err, dibs.ErrClosed)
		wantErr(t, other.Close())
		<-waits.done
		wantErr(t, waits.err, dibs.ErrClosed)
		wantFree(t, s, "n")
	})
}

func TestReentrantElection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		led := false
		wantErr(t, c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			_, err := c.Election("n").Campaign(ctx)
			wantErr(t, err, dibs.ErrReentrant)
			err = c.Election("n").Run(ctx, func(context.Context) error { led = true; return nil }, dibs.Reentrant())
			wantBusy(t, s, "n")
			return err
		}))
		if !led {
			t.Error("fn was not called")
		}
		wantFree(t, s, "n")
	})
}

func TestLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		e := open(t, s).Election("n", dibs.Label("east"), dibs.TTL(3*time.Second))
		other := open(t, s).Election("n")
		leader, err := other.Leader(t.Context())
		if err != nil || leader != (dibs.Leader{}) {
			t.Errorf("%+v, %v, want no leader", leader, err)
		}
		l, err := e.Campaign(t.Context())
		wantErr(t, err)
		leader, err = other.Leader(t.Context())
		want := dibs.Leader{Token: l.Token(), Label: "east", Term: l.Fence(), Remaining: 3 * time.Second}
		if err != nil || leader != want {
			t.Errorf("%+v, %v, want %+v", leader, err, want)
		}
		wantErr(t, l.Unlock())
		_, err = open(t, unusedStore{t}).Election("").Leader(t.Context())
		wantErr(t, err, dibs.ErrInvalid)
		_, err = open(t, unusedStore{t}).Election("n", dibs.OwnerToken("always-me")).Leader(t.Context())
		wantErr(t, err, dibs.ErrInvalid)
	})
}

// An observation is a leader or an error that Observe yielded, with its time.
type observation struct {
	leader dibs.Leader
	err    error
	at     time.Time
}

func observe(t *testing.T, ctx context.Context, e *dibs.Election) (seen func() []observation, done <-chan struct{}) {
	t.Helper()
	var mu sync.Mutex
	var all []observation
	end := make(chan struct{})
	go func() {
		defer close(end)
		for leader, err := range e.Watch(ctx) {
			mu.Lock()
			all = append(all, observation{leader, err, time.Now()})
			mu.Unlock()
		}
	}()
	return func() []observation {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}, end
}

func TestWatchYieldsEachChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		ctx, cancel := context.WithCancel(t.Context())
		seen, done := observe(t, ctx, open(t, s).Election("n"))
		var terms []uint64
		for i := range 3 {
			time.Sleep(time.Minute)
			begin := time.Now()
			if got := seen(); len(got) != 1+2*i || got[2*i].leader.Token != "" || got[2*i].err != nil {
				t.Fatalf("yielded %+v, want no leader, once", got)
			}
			l, err := open(t, s).Election("n", dibs.Label(fmt.Sprint(i))).Campaign(t.Context())
			wantErr(t, err)
			time.Sleep(time.Minute)
			got := seen()
			if len(got) != 2+2*i {
				t.Fatalf("yielded %+v, want %d changes", got, 2+2*i)
			}
			last := got[len(got)-1]
			if last.leader.Token != l.Token() || last.leader.Term != l.Fence() || last.leader.Label != fmt.Sprint(i) || last.err != nil {
				t.Errorf("yielded %+v, want %s in term %d", last, l.Token(), l.Fence())
			}
			wantWithin(t, last.at.Sub(begin), 0, 500*time.Millisecond)
			terms = append(terms, last.leader.Term)
			wantErr(t, l.Unlock())
		}
		if !slices.IsSorted(terms) || terms[0] == terms[1] || terms[1] == terms[2] {
			t.Errorf("terms %d, want growing numbers", terms)
		}
		cancel()
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("Watch has not ended with its context")
		}
		for range open(t, unusedStore{t}).Election("n").Watch(ctx) {
			t.Error("yielded with an ended context")
		}
	})
}

// The same leader's new term is a change.
func TestWatchYieldsNewTermOfSameLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		e := open(t, s).Election("n")
		ctx, cancel := context.WithCancel(t.Context())
		seen, done := observe(t, ctx, e)
		for range 2 {
			l, err := e.Campaign(t.Context(), dibs.OwnerToken("always-me"))
			wantErr(t, err)
			time.Sleep(time.Minute)
			wantErr(t, l.Unlock())
		}
		got := slices.DeleteFunc(seen(), func(x observation) bool { return x.leader.Token == "" }) // there may be no leader between the terms
		if len(got) != 2 || got[0].leader.Token != got[1].leader.Token || got[0].leader.Term >= got[1].leader.Term {
			t.Errorf("yielded %+v, want a second term", got)
		}
		cancel()
		<-done
	})
}

func TestWatchEndsWithTheLoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		requests := 0
		f.set(func(f *faulty) {
			f.inspect = func(ctx context.Context, name string) (driver.State, error) {
				requests++
				return f.Full.Inspect(ctx, name)
			}
		})
		for range open(t, f).Election("n").Watch(t.Context()) {
			break
		}
		time.Sleep(time.Minute)
		if requests != 1 {
			t.Errorf("%d requests, want 1", requests)
		}
	})
}

// An outage is yielded once, and then the leader when it is over, even if it is the same.
func TestWatchYieldsAnOutageOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		l, err := open(t, s).Election("n").Campaign(t.Context())
		wantErr(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		seen, done := observe(t, ctx, open(t, f).Election("n"))
		for range 2 {
			time.Sleep(time.Minute)
			f.hangAll()
			time.Sleep(time.Minute)
			f.heal()
		}
		time.Sleep(time.Minute)
		got := seen()
		if len(got) != 5 {
			t.Fatalf("yielded %+v, want 5", got)
		}
		for i, x := range got {
			switch {
			case i%2 == 1 && (!errors.Is(x.err, dibs.ErrUnavailable) || x.leader != dibs.Leader{}):
				t.Errorf("yielded %+v, want an error", x)
			case i%2 == 0 && (x.err != nil || x.leader.Token != l.Token()):
				t.Errorf("yielded %+v, want %s", x, l.Token())
			}
		}
		f.hangAll()
		time.Sleep(600 * time.Millisecond)
		cancel() // during a request; nothing more is yielded
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("Watch has not ended with its context")
		}
		if n := len(seen()); n != 5 {
			t.Errorf("%d yielded after the end", n-5)
		}
		f.heal()
		wantErr(t, l.Unlock())
	})
}

// A store that does not answer does not end the participation in the election.
func TestResignWithoutStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		e := open(t, f, dibs.TTL(2*time.Second)).Election("n")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		terms := 0
		go func() {
			done <- e.Run(ctx, func(ctx context.Context) error { terms++; <-ctx.Done(); return ctx.Err() })
		}()
		synctest.Wait()
		f.hangAll()
		e.Resign()
		time.Sleep(3 * time.Second)
		f.heal()
		time.Sleep(time.Minute)
		select {
		case err := <-done:
			t.Errorf("Run returned after %d terms: %v", terms, err)
		default:
			cancel()
			<-done
			if terms < 2 {
				t.Errorf("%d terms, want another one after the first", terms)
			}
		}
		cancel()
	})
}

func TestCancelWithoutStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		e := open(t, f, dibs.TTL(2*time.Second)).Election("n")
		why := errors.New("shut down")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }) }()
		synctest.Wait()
		f.hangAll()
		cancel(why)
		wantErr(t, <-done)
		f.heal()
	})
}

// An error that only reports the term's end does not count as a failure of the work.
func TestBusyBecauseTheTermEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		lock(t, open(t, s), "other")
		e := c.Election("n")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		terms := 0
		go func() {
			done <- e.Run(ctx, func(ctx context.Context) error {
				terms++
				return c.Mutex("other").Do(ctx, func(context.Context) error { return nil })
			})
		}()
		synctest.Wait()
		e.Resign()
		time.Sleep(time.Minute)
		select {
		case err := <-done:
			t.Errorf("Run returned after %d terms: %v", terms, err)
		default:
			cancel()
			<-done
			if terms < 2 {
				t.Errorf("%d terms, want another one after the first", terms)
			}
		}
		cancel()
	})
}

// A failure is returned even if the term is over as well.
func TestFailureAtTheEndOfTheTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		failed := errors.New("disk full")
		e := open(t, memstore.New()).Election("n")
		terms := 0
		r := run(t, e, func(ctx context.Context) error {
			terms++
			<-ctx.Done()
			return fmt.Errorf("schedule: %w", errors.Join(failed, ctx.Err()))
		})
		e.Resign()
		time.Sleep(time.Second)
		if !r.returned() {
			t.Error("Run campaigns again and hides the failure")
		}
		r.stop()
	})
}

// The client's limits are for its other locks: a candidate keeps its place in the queue.
func TestCandidateWaitsWithoutTheLimitOfTheClient(t *testing.T) {
	for name, limit := range map[string]dibs.Option{"wait": dibs.Wait(3 * time.Second), "attempts": dibs.Attempts(3, time.Second)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memstore.New()
				failed := 0
				hooks := dibs.Hooks{TermFailed: func(context.Context, dibs.TermFailed) { failed++ }}
				c := open(t, s, limit, dibs.Observe(hooks))
				term, err := open(t, s).Election("n").Campaign(t.Context())
				wantErr(t, err)
				led := make(chan time.Time, 1)
				r := run(t, c.Election("n"), func(ctx context.Context) error { led <- time.Now(); return nil })
				time.Sleep(time.Hour)
				resigned := time.Now()
				wantErr(t, term.Unlock())
				if at := <-led; at != resigned {
					t.Errorf("led %v after the term ended, want at once", at.Sub(resigned))
				}
				<-r.done
				wantErr(t, r.err)
				if failed > 0 {
					t.Errorf("%d campaigns failed", failed)
				}
				// The election's own limits apply.
				held, err := c.Election("n").Campaign(t.Context())
				wantErr(t, err)
				_, err = c.Election("n", limit).Campaign(t.Context())
				wantErr(t, err, dibs.ErrBusy)
				wantErr(t, held.Unlock())
			})
		})
	}
}
