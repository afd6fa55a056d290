package acquire

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/bootclock"
	"github.com/dibslock/dibs/internal/clock"
	"github.com/dibslock/dibs/internal/load"
	"github.com/dibslock/dibs/internal/work"
)

// A scripted store answers each acquire as a test says, and counts the cancels.
type scripted struct {
	driver.Store
	answer func(r driver.AcquireRequest) (driver.AcquireReply, error)

	mu      sync.Mutex   // guards cancels
	cancel  func() error // result of each cancel; or nil
	cancels int
}

func (s *scripted) Acquire(_ context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return s.answer(r)
}

func (s *scripted) Cancel(context.Context, driver.AcquireRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancels++
	if s.cancel != nil {
		return s.cancel()
	}
	return nil
}

func newAcquirer(s driver.Store) *Acquirer {
	now := bootclock.New()
	a := &Acquirer{
		Sender: Sender{Clock: now, Gate: load.NewGate(now.Now, func() {})},
		Store:  &Store{Full: driver.Complete(s), IsBack: func() bool { return true }}, Work: work.NewBackground(), Timeout: time.Second,
	}
	a.Inbox.SetFlow(Flowing, func() {})
	return a
}

// A call ends with a grant, or with an outcome that gives the reason. Only a call that may have
// left something at the store cancels it.
func TestEndsOfACall(t *testing.T) {
	const ttl = 30 * time.Second
	busy := driver.AcquireReply{Holder: "other", Position: 1, Ticket: 7, Fence: 100, Remaining: time.Hour}
	refusal := &driver.UnavailableError{Op: "acquire", Refused: true}
	heldAfter := func(d time.Duration) func(driver.AcquireRequest) (driver.AcquireReply, error) {
		return func(driver.AcquireRequest) (driver.AcquireReply, error) {
			time.Sleep(d)
			return driver.AcquireReply{Held: true, Fence: 101}, nil
		}
	}
	held := heldAfter(0)
	isBusy := func(driver.AcquireRequest) (driver.AcquireReply, error) { return busy, nil }
	for what, test := range map[string]struct {
		answer  func(driver.AcquireRequest) (driver.AcquireReply, error)
		limits  Limits
		during  func(a *Acquirer, cancel context.CancelFunc) // a second after the beginning
		ended   bool                                         // the context, from the beginning
		why     Why
		retry   bool // another attempt may succeed
		grant   Grant
		cancels int
	}{
		"free":              {answer: held, grant: Grant{Fence: 101, FirstFence: 101, TTL: ttl}},
		"ended before":      {answer: held, ended: true, why: NotSent},
		"busy, no queue":    {answer: isBusy, why: Busy, retry: true},
		"rejected":          {answer: func(driver.AcquireRequest) (driver.AcquireReply, error) { return busy, refusal }, why: Failed},
		"waits to its end":  {answer: isBusy, limits: Limits{Queue: true, End: 5 * time.Second}, why: Busy, retry: true, cancels: 1},
		"waiting was over":  {answer: isBusy, limits: Limits{Queue: true, End: -1}, why: Busy, retry: true},
		"context ends":      {answer: isBusy, limits: Limits{Queue: true}, during: func(_ *Acquirer, cancel context.CancelFunc) { cancel() }, why: Busy, retry: true, cancels: 1},
		"client closes":     {answer: isBusy, limits: Limits{Queue: true}, during: func(a *Acquirer, _ context.CancelFunc) { a.Work.Close() }, why: Closed, cancels: 1},
		"hand-off":          {answer: isBusy, limits: Limits{Queue: true}, during: grantOf(7, 120), grant: Grant{Fence: 120, FirstFence: 118, TTL: 5 * time.Second, Notified: true, Handoff: time.Millisecond}},
		"of an older entry": {answer: isBusy, limits: Limits{Queue: true, End: 2 * time.Second}, during: grantOf(6, 120), why: Busy, retry: true, cancels: 1},
		"an older grant":    {answer: isBusy, limits: Limits{Queue: true, End: 2 * time.Second}, during: grantOf(7, 100), why: Busy, retry: true, cancels: 1},
		"answered in time":  {answer: heldAfter(ttl - clock.Margin(ttl) - 1), grant: Grant{Fence: 101, FirstFence: 101, TTL: ttl}},
		"answered too late": {answer: heldAfter(ttl - clock.Margin(ttl)), why: Failed, retry: true, cancels: 1},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &scripted{answer: test.answer}
				a := newAcquirer(store)
				defer a.Work.End()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.ended {
					cancel()
				}
				if test.during != nil {
					time.AfterFunc(time.Second, func() { test.during(a, cancel) })
				}
				test.limits.Timeout = time.Second
				var call Call
				call.Begin(a, driver.AcquireRequest{Name: "n", Token: "mine", TTL: ttl, Weight: 1, Limit: 1}, test.limits, false)
				g, o := call.Run(ctx, nil)
				if o.Why != test.why || o.MayRetry() != test.retry {
					t.Errorf("ended because of %d with %v, may retry: %v; want %d, %v", o.Why, o.Err, o.MayRetry(), test.why, test.retry)
				}
				g.Request, g.Sent = driver.AcquireRequest{}, 0
				if g.Fence != test.grant.Fence || g.FirstFence != test.grant.FirstFence || g.TTL != test.grant.TTL || g.Notified != test.grant.Notified || g.Handoff != test.grant.Handoff {
					t.Errorf("granted %+v, want %+v", g, test.grant)
				}
				call.End(ctx, o.Why == Granted)
				call.End(ctx, false) // it ended before
				synctest.Wait()
				if store.cancels != test.cancels {
					t.Errorf("%d cancels, want %d", store.cancels, test.cancels)
				}
				if n := a.Inbox.Calls(); n != 0 {
					t.Errorf("%d calls left in the inbox", n)
				}
			})
		})
	}
}

// grantOf delivers a grant by hand-off, with the two fences before it.
func grantOf(ticket, fence uint64) func(*Acquirer, context.CancelFunc) {
	return func(a *Acquirer, _ context.CancelFunc) {
		a.Granted(driver.Event{Kind: driver.EventGranted, Token: "mine", Ticket: ticket, Fence: fence, Fences: 3, Age: time.Millisecond})
	}
}

// A context's end should be the cause of an outcome only if another attempt could have changed the
// outcome.
func TestOutcomeOfAnEndedContext(t *testing.T) {
	ended, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the user went away")
	cancel(why)
	lost := errors.New("connection reset")
	for what, test := range map[string]struct {
		before Outcome
		want   Why
		errs   []error
	}{
		"busy":                   {Outcome{Why: Busy}, Busy, nil},
		"no answer":              {Outcome{Why: Failed, Err: &driver.UnavailableError{Cause: lost}}, Failed, []error{why, lost, driver.ErrUnavailable}},
		"no answer to a waiter":  {Outcome{Why: Failed, Err: lost, Replied: true}, Busy, nil},
		"the error has it":       {Outcome{Why: Failed, Err: why}, Failed, []error{why}},
		"rejected":               {Outcome{Why: Failed, Err: &driver.UnavailableError{Refused: true}}, Failed, []error{driver.ErrUnavailable}},
		"rejected after replies": {Outcome{Why: Failed, Err: driver.ErrInvalid, Replied: true}, Failed, []error{driver.ErrInvalid}},
	} {
		t.Run(what, func(t *testing.T) {
			o := test.before.Ended(ended, "n")
			if o.Why != test.want || (o.Cause != nil) != (o.Why == Busy) {
				t.Errorf("%d because of %v, want %d", o.Why, o.Cause, test.want)
			}
			for _, err := range test.errs {
				if !errors.Is(o.Err, err) {
					t.Errorf("%v is not %v", o.Err, err)
				}
			}
		})
	}
	if o := (Outcome{Why: Busy}).Ended(t.Context(), "n"); o.Why != Closed {
		t.Errorf("%d, want the end of the client", o.Why)
	}
}

// A waiter's pauses should grow during an outage, and be short again at the beginning of the next
// outage.
func TestWaiterRetriesSoonInEachOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const soon = 50 * time.Millisecond * 5 / 4
		var begin, failed time.Time // the outage; the last request in it
		var first, last time.Duration
		up := 2 // answers before the next outage
		answer := func(r driver.AcquireRequest) (driver.AcquireReply, error) {
			if !failed.IsZero() {
				last = time.Since(failed)
				if first == 0 {
					first = last
				}
			}
			switch outage := !begin.IsZero() && time.Since(begin) < 10*time.Second; {
			case outage || up == 0:
				if up == 0 {
					begin, first, up = time.Now(), 0, 2
				}
				failed = time.Now()
				return driver.AcquireReply{}, &driver.UnavailableError{Op: "acquire", Cause: errors.New("connection refused")}
			case !failed.IsZero() && (first > soon || last < 500*time.Millisecond):
				t.Errorf("the first pause in an outage was %v, the last one %v", first, last)
			}
			failed = time.Time{}
			up--
			return driver.AcquireReply{Holder: "other", Position: 1, Ticket: 7, Fence: 100, Remaining: time.Hour}, nil
		}
		a := newAcquirer(&scripted{answer: answer})
		defer a.Work.End()
		var call Call
		call.Begin(a, driver.AcquireRequest{Name: "n", Token: "mine", TTL: time.Minute, Weight: 1, Limit: 1}, Limits{Queue: true, End: a.Clock.Now() + time.Minute, Timeout: time.Second}, false)
		defer call.End(t.Context(), false)
		if _, o := call.Run(t.Context(), nil); o.Why != Busy || first == 0 {
			t.Errorf("ended because of %d, %v", o.Why, o.Err)
		}
	})
}

// Waiters must repeat their requests when the holder's lease expires, in sequence but all within
// a short time: earlier waiters may be dead.
func TestRetryDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		for what, test := range map[string]struct {
			position  int
			remaining time.Duration
			ttl, want time.Duration
		}{
			"first":           {1, time.Second, time.Minute, 1002 * ms},
			"not queued":      {0, time.Second, time.Minute, 1002 * ms},
			"tenth":           {10, time.Second, time.Minute, 1020 * ms},
			"sixtieth":        {60, time.Second, time.Minute, 1100 * ms},
			"expires later":   {1, time.Hour, time.Minute, heartbeat},
			"expires unknown": {1, -1, time.Minute, heartbeat},
			"short TTL":       {1, time.Hour, time.Second, 500 * ms},
		} {
			c := Call{a: newAcquirer(nil), request: driver.AcquireRequest{Name: "n", TTL: test.ttl}, reply: driver.AcquireReply{Position: test.position, Remaining: test.remaining}}
			if d := c.retryDelay(Outcome{Why: Busy}); d != test.want {
				t.Errorf("%s: %v, want %v", what, d, test.want)
			}
		}
	})
}

// A client without a subscription cannot be notified. So its first request should not queue. The
// next request queues: when the client is subscribed or has no events, or after a while.
func TestCallBeforeTheSubscription(t *testing.T) {
	const after = 200 * time.Millisecond
	for what, test := range map[string]struct {
		flow  Flow
		queue time.Duration // when a request queues
	}{"subscribed": {Flowing, after}, "without events": {Stopped, after}, "not subscribed": {Unsubscribed, subscriptionWait}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, requests := time.Now(), 0
				a := newAcquirer(&scripted{answer: func(r driver.AcquireRequest) (driver.AcquireReply, error) {
					want := time.Duration(0)
					if requests++; requests > 1 {
						want = test.queue
					}
					if at := time.Since(begin); r.Queue != (requests > 1) || requests <= 2 && at != want {
						t.Errorf("request %d after %v, queues: %t; want it after %v", requests, at, r.Queue, want)
					}
					return driver.AcquireReply{Holder: "other", Fence: 100, Remaining: time.Hour}, nil
				}})
				defer a.Work.End()
				a.Inbox.SetFlow(Unsubscribed, func() {})
				time.AfterFunc(after, func() {
					if before := a.Inbox.SetFlow(test.flow, func() {}); test.flow != before {
						a.Inbox.RetryAll()
					}
				})
				var call Call
				call.Begin(a, driver.AcquireRequest{Name: "n", Token: "mine", TTL: time.Minute, Weight: 1, Limit: 1}, Limits{Queue: true, End: a.Clock.Now() + 3*time.Second/2, Timeout: time.Second}, false)
				defer call.End(t.Context(), false)
				if _, o := call.Run(t.Context(), nil); o.Why != Busy || requests < 2 {
					t.Errorf("ended because of %d after %d requests", o.Why, requests)
				}
			})
		})
	}
}

// A grant by hand-off should count from the last answered request. If little time is left, the next
// request confirms it.
func TestLateHandOffIsConfirmed(t *testing.T) {
	const ttl, late = 30 * time.Second, 3650 * time.Millisecond // 5 s without the margin and a quarter
	for what, test := range map[string]struct {
		at       time.Duration
		notified bool
		ttl      time.Duration
	}{"in time": {late, true, 5 * time.Second}, "late": {late + 1, false, ttl}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				a := newAcquirer(&scripted{answer: func(driver.AcquireRequest) (driver.AcquireReply, error) {
					switch at := time.Since(begin); {
					case at == 0:
						return driver.AcquireReply{Holder: "other", Position: 1, Ticket: 7, Fence: 100, Remaining: time.Hour}, nil
					case at <= late:
						return driver.AcquireReply{}, &driver.UnavailableError{Op: "acquire", Cause: errors.New("connection refused")}
					}
					return driver.AcquireReply{Held: true, Fence: 120}, nil
				}})
				defer a.Work.End()
				time.AfterFunc(test.at, func() { grantOf(7, 120)(a, nil) })
				var call Call
				call.Begin(a, driver.AcquireRequest{Name: "n", Token: "mine", TTL: ttl, Weight: 1, Limit: 1}, Limits{Queue: true, Timeout: time.Second}, false)
				g, o := call.Run(t.Context(), nil)
				call.End(t.Context(), true)
				if at := time.Since(begin); o.Why != Granted || g.Fence != 120 || g.Notified != test.notified || g.TTL != test.ttl || at != test.at {
					t.Errorf("after %v: %+v, %+v; want it notified: %t, after %v", at, g, o, test.notified, test.at)
				}
			})
		})
	}
}
