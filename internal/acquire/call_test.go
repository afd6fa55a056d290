package acquire

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
	"github.com/dibslock/dibs/internal/load"
	"github.com/dibslock/dibs/internal/work"
)

// A scripted store answers each acquire as a test says, and counts the cancels.
type scripted struct {
	driver.Store
	answer  func(r driver.AcquireRequest) (driver.AcquireReply, error)
	cancels int
}

func (s *scripted) Acquire(_ context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return s.answer(r)
}

func (s *scripted) Cancel(context.Context, driver.AcquireRequest) error {
	s.cancels++
	return nil
}

func newAcquirer(s driver.Store) *Acquirer {
	now := clock.New()
	a := &Acquirer{
		Sender: Sender{Clock: now, Gate: load.NewGate(now.Now, func() {})},
		Store:  &Store{Full: driver.Complete(s), IsBack: func() bool { return true }}, Work: work.NewBackground(), Timeout: time.Second,
	}
	a.Inbox.SetFlow(Flowing, func() {})
	return a
}

// A call ends with a grant, or with an outcome that says why there is none. Only a call that may have left
// something at the store cancels it.
func TestEndsOfACall(t *testing.T) {
	const ttl = 30 * time.Second
	busy := driver.AcquireReply{Holder: "other", Position: 1, Ticket: 7, Fence: 100, Remaining: time.Hour}
	refusal := &driver.UnavailableError{Op: "acquire", Refused: true}
	held := func(driver.AcquireRequest) (driver.AcquireReply, error) {
		return driver.AcquireReply{Held: true, Fence: 101}, nil
	}
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
		"answered too late": {answer: func(driver.AcquireRequest) (driver.AcquireReply, error) {
			time.Sleep(ttl)
			return driver.AcquireReply{Held: true, Fence: 101}, nil
		}, why: Failed, retry: true, cancels: 1},
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
				call.End(ctx, false) // it has ended
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

// The end of a context is the cause of an outcome that another attempt might have changed, and of no
// other one.
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
