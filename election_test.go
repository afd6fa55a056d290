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

// A campaign is a Run on its way.
type campaign struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error
}

// run campaigns in the background, until the test ends if not before.
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

// stop ends the campaign, and returns when it has ended.
func (r *campaign) stop() {
	r.cancel(nil)
	<-r.done
}

func (r *campaign) over() bool {
	synctest.Wait()
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// untilEnd is work that ends with its context, and says so.
func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Each leads in turn, alone, and stands behind the others afterwards; the terms grow.
func TestOneLeadsAtATime(t *testing.T) {
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
					t.Errorf("%d lead", leading)
				}
				if dibs.Fence(ctx) <= last {
					t.Errorf("term %d after %d", dibs.Fence(ctx), last)
				}
				last = dibs.Fence(ctx)
				order = append(order, i)
				mu.Unlock()
				time.Sleep(10 * time.Second)
				if !e.Resign() {
					t.Error("it resigned from nothing")
				}
				<-ctx.Done()
				time.Sleep(time.Second) // to put things in order
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
				t.Fatalf("led in the order %v, want one after another", order)
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

// A leader that cannot reach the store knows it before another one leads.
func TestLeaderKnowsBeforeAnotherLeads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := broken()
		var ended, led time.Time
		terms := 0
		leader := run(t, open(t, f, dibs.TTL(2*time.Second)).Election("n"), func(ctx context.Context) error {
			if terms++; terms > 1 {
				return untilEnd(ctx)
			}
			<-ctx.Done()
			ended = time.Now()
			wantLost(t, context.Cause(ctx), dibs.ReasonExpired)
			return nil // in a term that is lost
		})
		follower := run(t, open(t, good).Election("n"), func(ctx context.Context) error {
			led = time.Now()
			return untilEnd(ctx)
		})
		time.Sleep(time.Minute)
		f.mute()
		dead := time.Now()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if ended.IsZero() || led.IsZero() || led.Sub(ended) < 40*time.Millisecond {
			t.Errorf("ended at %v, the next one led at %v; want 40ms between", ended, led)
		}
		within(t, led.Sub(dead), time.Second, 2*time.Second+10*time.Millisecond)
		f.heal()
		if leader.over() {
			t.Errorf("it does not campaign again: %v", leader.err)
		}
		time.Sleep(time.Minute)
		follower.stop()
		synctest.Wait()
		if terms != 2 {
			t.Errorf("%d terms of the first, want that it leads again", terms)
		}
		leader.stop()
	})
}

// A moment is noted by one goroutine and read by another.
type moment struct{ at atomic.Int64 }

func (m *moment) note()       { m.at.Store(time.Now().UnixNano()) }
func (m *moment) noted() bool { return m.at.Load() != 0 }

// Resign ends the work's context; the next one leads in the moment when the work has
// returned. Who resigned campaigns again, behind those who wait.
func TestResign(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		e := c.Election("n")
		if e.Resign() {
			t.Error("resigned from nothing")
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
			returned.note()
			return nil // in a term that was resigned
		})
		second := open(t, s).Election("n")
		next := run(t, second, func(ctx context.Context) error { led.note(); return untilEnd(ctx) })
		if second.Resign() {
			t.Error("resigned while another one leads")
		}
		if !e.Resign() {
			t.Error("no term to resign from")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if led.noted() {
			t.Error("the next one leads before the work has returned")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if !led.noted() || led.at.Load() != returned.at.Load() {
			t.Errorf("the next one did not begin to lead in the moment when the work returned")
		}
		if first.over() {
			t.Fatalf("it does not campaign again: %v", first.err)
		}
		next.stop()
		synctest.Wait()
		if terms.Load() != 2 {
			t.Errorf("%d terms, want that it leads again", terms.Load())
		}
		first.stop()
		free(t, s, "n")
	})
}

// A term is a lease: to resign ends its contexts, also those made later, and not the
// lease.
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
		wantErr(t, l.Err()) // renewed until it is given back
		wantErr(t, other.Err())
		busy(t, s, "n")
		wantErr(t, l.Unlock())
		free(t, s, "n")
		if e.Resign() {
			t.Error("resigned from nothing")
		}
	})
}

// The store is told of the term at once, so that others can learn its number.
func TestTermIsKnownAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := broken()
		e := open(t, f).Election("n")
		l, err := e.Campaign(t.Context())
		wantErr(t, err)
		synctest.Wait()
		if calls, _ := f.asked(); calls != 1 {
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
				if !r.over() {
					t.Fatal("it goes on")
				}
				if !errors.Is(r.err, end.want) {
					t.Errorf("error %v, want %v", r.err, end.want)
				}
				free(t, s, "n")
			})
		})
	}
}

// An error that says more than that the context has ended ends Run, also in a term
// that is over; one that says no more does not.
func TestErrorsOfATermThatIsOver(t *testing.T) {
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
				_, err = s.Revoke(t.Context(), "n", leader.Term)
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
					if over := r.over(); over != end.over || (terms == 2) == end.over {
						t.Errorf("over: %v after %d terms, want over: %v", over, terms, end.over)
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

// Run ends with the cause of its context, whatever it is doing.
func TestRunEndsWithItsContext(t *testing.T) {
	why := errors.New("shut down")
	bubble(t, func(t *testing.T) {
		f, s := broken()
		leads := run(t, open(t, s).Election("n"), func(ctx context.Context) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), why) {
				t.Errorf("cause %v, want %v", context.Cause(ctx), why)
			}
			return ctx.Err()
		})
		never := func(context.Context) error { t.Error("it leads"); return nil }
		waits := run(t, open(t, s).Election("n"), never)
		f.set(func(f *faulty) {
			f.acquire = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
				return driver.AcquireReply{}, &dibs.UnavailableError{Op: "test", Refused: true}
			}
		})
		pauses := run(t, open(t, f).Election("n"), never)
		f.mute()
		asks := run(t, open(t, f).Election("n"), never)
		begin := time.Now()
		for what, r := range map[string]*campaign{"waits": waits, "pauses": pauses, "asks": asks, "leads": leads} {
			if r.over() {
				t.Errorf("one that %s: %v", what, r.err)
			}
		}
		for _, r := range []*campaign{waits, pauses, asks, leads} {
			r.cancel(why)
			<-r.done
			if !errors.Is(r.err, why) {
				t.Errorf("%v, want %v", r.err, why)
			}
		}
		within(t, time.Since(begin), 0, 0)
		f.heal()
		eventually(t, s, "n")

		ended := run(t, open(t, s).Election("n"), untilEnd)
		ended.cancel(why)
		<-ended.done
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if err := open(t, s).Election("n").Run(ctx, never); !errors.Is(err, why) {
			t.Errorf("%v, want %v", err, why)
		}
	})
}

// After failures of the store the pauses grow from 50 ms to 5 s; the hook tells. When
// it has led for long, they begin anew.
func TestRunOutlastsTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := broken()
		why := errors.New("READONLY")
		refuse := func(f *faulty) {
			f.acquire = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
				return driver.AcquireReply{}, &dibs.UnavailableError{Op: "acquire", Name: "n", Cause: why, Refused: true}
			}
		}
		f.set(refuse)
		var told []time.Duration
		var at []time.Time
		e := open(t, f).Election("n", dibs.Observe(dibs.Hooks{Campaign: func(c dibs.Campaign) {
			if c.Name != "n" || !errors.Is(c.Err, dibs.ErrUnavailable) || !errors.Is(c.Err, why) {
				t.Errorf("%+v", c)
			}
			told, at = append(told, c.Again), append(at, time.Now())
		}}))
		led := 0
		r := run(t, e, func(ctx context.Context) error { led++; return untilEnd(ctx) })
		time.Sleep(30 * time.Second)
		synctest.Wait()
		for i, again := range told {
			if want := min(50*time.Millisecond<<i, 5*time.Second); again != want {
				t.Errorf("pauses %v, want 50ms, and twice as long each time, to 5s", told)
				break
			}
			if i > 0 && at[i].Sub(at[i-1]) != told[i-1] {
				t.Errorf("told %v, and asked again after %v", told[i-1], at[i].Sub(at[i-1]))
			}
		}
		if led != 0 || len(told) < 10 {
			t.Errorf("%d terms, %d failures", led, len(told))
		}
		f.heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		if led != 1 {
			t.Errorf("%d terms when the store is back", led)
		}
		told = nil
		f.set(refuse)
		e.Resign()
		time.Sleep(70 * time.Millisecond)
		synctest.Wait()
		if len(told) == 0 || told[0] > 100*time.Millisecond {
			t.Errorf("pauses %v after a long term, want short ones again", told)
		}
		f.heal()
		r.stop()
	})
}

// What asking again cannot help ends Run at once, and fn is not called.
func TestRunThatCannotSucceed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		never := func(context.Context) error { t.Error("it leads"); return nil }
		begin := time.Now()
		bad := open(t, untouched{t})
		wantErr(t, bad.Election("").Run(t.Context(), never), dibs.ErrInvalid)
		wantErr(t, bad.Election("n", dibs.TTL(0)).Run(t.Context(), never), dibs.ErrInvalid)
		wantErr(t, bad.Election("n").Run(t.Context(), never, dibs.TTL(0)), dibs.ErrInvalid)

		f, s := broken()
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
		within(t, time.Since(begin), 0, 0)
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
		free(t, s, "n")
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
			busy(t, s, "n")
			return err
		}))
		if !led {
			t.Error("fn was not called")
		}
		free(t, s, "n")
	})
}

func TestLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		e := open(t, s).Election("n", dibs.Label("east"), dibs.TTL(3*time.Second))
		other := open(t, s).Election("n")
		leader, err := other.Leader(t.Context())
		if err != nil || leader != (dibs.Leader{}) {
			t.Errorf("%+v, %v, want nobody", leader, err)
		}
		l, err := e.Campaign(t.Context())
		wantErr(t, err)
		leader, err = other.Leader(t.Context())
		want := dibs.Leader{Token: l.Token(), Label: "east", Term: l.Fence(), Remaining: 3 * time.Second}
		if err != nil || leader != want {
			t.Errorf("%+v, %v, want %+v", leader, err, want)
		}
		wantErr(t, l.Unlock())
		_, err = open(t, untouched{t}).Election("").Leader(t.Context())
		wantErr(t, err, dibs.ErrInvalid)
	})
}

// A sight is what Observe told, and when.
type sight struct {
	leader dibs.Leader
	err    error
	at     time.Time
}

func observe(t *testing.T, ctx context.Context, e *dibs.Election) (seen func() []sight, done <-chan struct{}) {
	t.Helper()
	var mu sync.Mutex
	var all []sight
	end := make(chan struct{})
	go func() {
		defer close(end)
		for leader, err := range e.Observe(ctx) {
			mu.Lock()
			all = append(all, sight{leader, err, time.Now()})
			mu.Unlock()
		}
	}()
	return func() []sight {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}, end
}

func TestObserveTellsEachChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		ctx, cancel := context.WithCancel(t.Context())
		seen, done := observe(t, ctx, open(t, s).Election("n"))
		var terms []uint64
		for i := range 3 {
			time.Sleep(time.Minute)
			begin := time.Now()
			if got := seen(); len(got) != 1+2*i || got[2*i].leader.Token != "" || got[2*i].err != nil {
				t.Fatalf("told %+v, want that nobody leads, once", got)
			}
			l, err := open(t, s).Election("n", dibs.Label(fmt.Sprint(i))).Campaign(t.Context())
			wantErr(t, err)
			time.Sleep(time.Minute)
			got := seen()
			if len(got) != 2+2*i {
				t.Fatalf("told %+v, want %d changes", got, 2+2*i)
			}
			last := got[len(got)-1]
			if last.leader.Token != l.Token() || last.leader.Term != l.Fence() || last.leader.Label != fmt.Sprint(i) || last.err != nil {
				t.Errorf("told %+v, want %s in term %d", last, l.Token(), l.Fence())
			}
			within(t, last.at.Sub(begin), 0, 500*time.Millisecond)
			terms = append(terms, last.leader.Term)
			wantErr(t, l.Unlock())
		}
		if !slices.IsSorted(terms) || terms[0] == terms[1] || terms[1] == terms[2] {
			t.Errorf("terms %d, want that they grow", terms)
		}
		cancel()
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("it observes on after its context has ended")
		}
		for range open(t, untouched{t}).Election("n").Observe(ctx) {
			t.Error("told with an ended context")
		}
	})
}

// A term of the same leader is another term.
func TestObserveTellsANewTermOfTheSameLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		e := open(t, s).Election("n", dibs.Token("always-me"))
		ctx, cancel := context.WithCancel(t.Context())
		seen, done := observe(t, ctx, e)
		for range 2 {
			l, err := e.Campaign(t.Context())
			wantErr(t, err)
			time.Sleep(time.Minute)
			wantErr(t, l.Unlock())
		}
		got := slices.DeleteFunc(seen(), func(x sight) bool { return x.leader.Token == "" }) // between the terms, perhaps
		if len(got) != 2 || got[0].leader.Token != got[1].leader.Token || got[0].leader.Term >= got[1].leader.Term {
			t.Errorf("told %+v, want a second term", got)
		}
		cancel()
		<-done
	})
}

func TestObserveEndsWhenTheLoopIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := broken()
		asked := 0
		f.set(func(f *faulty) {
			f.inspect = func(ctx context.Context, name string) (dibs.State, error) {
				asked++
				return f.Store.Inspect(ctx, name)
			}
		})
		for range open(t, f).Election("n").Observe(t.Context()) {
			break
		}
		time.Sleep(time.Minute)
		if asked != 1 {
			t.Errorf("asked %d times, want once", asked)
		}
	})
}

// An outage is told once, and then who leads when it is over, be it the same.
func TestObserveTellsAnOutageOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := broken()
		l, err := open(t, s).Election("n").Campaign(t.Context())
		wantErr(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		seen, done := observe(t, ctx, open(t, f).Election("n"))
		for range 2 {
			time.Sleep(time.Minute)
			f.mute()
			time.Sleep(time.Minute)
			f.heal()
		}
		time.Sleep(time.Minute)
		got := seen()
		if len(got) != 5 {
			t.Fatalf("told %+v, want 5", got)
		}
		for i, x := range got {
			switch {
			case i%2 == 1 && (!errors.Is(x.err, dibs.ErrUnavailable) || x.leader != dibs.Leader{}):
				t.Errorf("told %+v, want an error", x)
			case i%2 == 0 && (x.err != nil || x.leader.Token != l.Token()):
				t.Errorf("told %+v, want %s", x, l.Token())
			}
		}
		f.mute()
		time.Sleep(600 * time.Millisecond)
		cancel() // while a question is on its way, and told no more
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("it observes on after its context has ended")
		}
		if n := len(seen()); n != 5 {
			t.Errorf("told %d after the end", n-5)
		}
		f.heal()
		wantErr(t, l.Unlock())
	})
}

// That the store does not answer is no reason to leave the election.
func TestResignWithoutStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := broken()
		e := open(t, f, dibs.TTL(2*time.Second)).Election("n")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		terms := 0
		go func() {
			done <- e.Run(ctx, func(ctx context.Context) error { terms++; <-ctx.Done(); return ctx.Err() })
		}()
		synctest.Wait()
		f.mute()
		e.Resign()
		time.Sleep(3 * time.Second)
		f.heal()
		time.Sleep(time.Minute)
		select {
		case err := <-done:
			t.Errorf("Run is over after %d terms: %v", terms, err)
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
		f, _ := broken()
		e := open(t, f, dibs.TTL(2*time.Second)).Election("n")
		why := errors.New("shut down")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }) }()
		synctest.Wait()
		f.mute()
		cancel(why)
		if err := <-done; !errors.Is(err, why) {
			t.Errorf("Run: %v, want ctx's cause", err)
		}
		f.heal()
	})
}

// What only says that the term has ended is not a failure of the work.
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
			t.Errorf("Run is over after %d terms: %v", terms, err)
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

// A failure is not swallowed because the term has ended as well.
func TestFailureBesideTheEndOfTheTerm(t *testing.T) {
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
		if !r.over() {
			t.Error("Run campaigns again, and nobody hears of the failure")
		}
		r.stop()
	})
}
