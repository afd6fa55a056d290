package lease

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
)

const second = time.Second

var errSilent = errors.New("no answer")

// newState returns a renewed lease with a TTL that began at zero.
func newState(ttl time.Duration) *State {
	s := Granted(driver.AcquireRequest{Name: "n", Token: "token", Weight: 1, Limit: 1}, 7, ttl)
	s.Times.Begin(false, 0, 0, ttl, false, 0)
	return &s
}

func TestMargin(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		10 * second:            200 * time.Millisecond,
		100 * time.Millisecond: 2 * time.Millisecond,
		10 * time.Millisecond:  2 * time.Millisecond,
	} {
		if got := clock.Margin(ttl); got != want {
			t.Errorf("margin of a TTL of %v: %v, want %v", ttl, got, want)
		}
	}
}

func TestStateBegins(t *testing.T) {
	for name, test := range map[string]struct {
		noRenew, lift bool
		now, maxHold  time.Duration
		spread        float64
		rule          rule
		renewAt       time.Duration
	}{
		"renewed":                  {renewAt: 9800 * time.Millisecond / 3},
		"spread":                   {spread: 0.5, renewAt: 9800 * time.Millisecond / 4},
		"after a long wait":        {now: 6 * second, renewAt: 6*second + 3800*time.Millisecond/3},
		"NoRenew":                  {noRenew: true, rule: fixed, renewAt: clock.Never},
		"NoRenew after a hand-off": {noRenew: true, lift: true, rule: extendOnce, renewAt: 9800 * time.Millisecond / 3},
		"MaxHold is the TTL":       {maxHold: 10 * second, renewAt: clock.Never},
		"MaxHold is longer":        {maxHold: 11 * second, renewAt: 9800 * time.Millisecond / 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := &State{Times: Times{ttl: 10 * second}}
			s.Times.LimitHold(0, 0, 0, test.maxHold)
			s.Times.Begin(test.noRenew, test.now, 0, 10*second, test.lift, test.spread)
			if s.Times.deadline != 9800*time.Millisecond || s.Times.rule != test.rule || s.Times.renewAt != test.renewAt {
				t.Errorf("deadline %v, rule %d, renewal at %v; want 9.8s, %d, %v", s.Times.deadline, s.Times.rule, s.Times.renewAt, test.rule, test.renewAt)
			}
		})
	}
}

func TestStateActs(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*State)
		now    time.Duration
		late   time.Duration
		renew  bool
		ended  Reason
	}{
		"too early":                      {now: 2 * second},
		"early, to share a batch":        {now: 3167 * time.Millisecond, renew: true},
		"early, by a late scheduler":     {now: 267 * time.Millisecond, late: time.Minute, renew: true},
		"too early, by a late scheduler": {now: 266 * time.Millisecond, late: time.Minute},
		"due":                            {now: 4 * second, renew: true},
		"a renewal is in progress":       {change: func(s *State) { s.Times.Send() }, now: 9 * second},
		"early after a failure":          {change: func(s *State) { s.Times.changeExtra().renewErr = driver.ErrUnavailable }, now: 3167 * time.Millisecond},
		"at the deadline":                {now: 9800 * time.Millisecond, ended: Expired},
		"at the deadline, in a renewal":  {change: func(s *State) { s.Times.Send() }, now: 9800 * time.Millisecond, ended: Expired},
		"at the end of MaxHold":          {change: func(s *State) { s.Times.maxHoldReached = true }, now: 9800 * time.Millisecond, ended: MaxHold},
		"after its release":              {change: (*State).Release, now: 9800 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(10 * second)
			if test.change != nil {
				test.change(s)
			}
			renew := s.Times.IsDue(test.now, test.late)
			s.ExpireAt(test.now, 0, errSilent)
			reason := s.Reason()
			if reason == Released {
				reason = Held
			}
			if renew != test.renew || reason != test.ended {
				t.Errorf("renew %t, lost because of %d; want %t, %d", renew, reason, test.renew, test.ended)
			}
			s.Times.renewAt = min(s.Times.renewAt, test.now)
			if renew && (!s.Times.Send() || s.Times.IsDue(test.now, test.late)) {
				t.Error("not renewed, or renewed twice")
			}
		})
	}
}

func TestStateRecordsRenewals(t *testing.T) {
	unavailable := &driver.UnavailableError{Op: "extend"}
	for name, test := range map[string]struct {
		change            func(*State)
		names             int
		err               error
		deadline, renewAt time.Duration
	}{
		"success":                  {names: 1, deadline: 13800 * time.Millisecond, renewAt: 4*second + 10*second/3},
		"names were added":         {change: func(s *State) { s.changeExtra().more = []Named{{"m", 8}} }, names: 1, deadline: 9800 * time.Millisecond, renewAt: 5 * second},
		"failure":                  {names: 1, err: unavailable, deadline: 9800 * time.Millisecond, renewAt: 5125 * time.Millisecond},
		"failure near the end":     {change: func(s *State) { s.Times.deadline = 5100 * time.Millisecond }, names: 1, err: unavailable, deadline: 5100 * time.Millisecond, renewAt: 5025 * time.Millisecond},
		"failure at the very end":  {change: func(s *State) { s.Times.deadline = 5001 * time.Millisecond }, names: 1, err: unavailable, deadline: 5001 * time.Millisecond, renewAt: 5010 * time.Millisecond},
		"the one renewal":          {change: func(s *State) { s.Times.rule = extendOnce }, names: 1, deadline: 13800 * time.Millisecond, renewAt: clock.Never},
		"the last one in MaxHold":  {change: func(s *State) { s.Times.changeExtra().maxHoldUntil = 14 * second }, names: 1, deadline: 13800 * time.Millisecond, renewAt: clock.Never},
		"never a shorter deadline": {change: func(s *State) { s.Times.deadline = 20 * second }, names: 1, deadline: 20 * second, renewAt: 4*second + 10*second/3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(10 * second)
			s.Times.Send()
			if test.change != nil {
				test.change(s)
			}
			s.RecordRenewal(5*second, 4*second, 10*second, test.names, test.err, s.Times.RetryAt(5*second).Truncate(time.Millisecond))
			if s.Times.deadline != test.deadline || s.Times.renewAt != test.renewAt {
				t.Errorf("deadline %v, next renewal %v; want %v, %v", s.Times.deadline, s.Times.renewAt, test.deadline, test.renewAt)
			}
			if s.Times.attempts > 0 || !errors.Is(s.Times.readExtra().renewErr, test.err) {
				t.Errorf("%d in progress, error %v", s.Times.attempts, s.Times.readExtra().renewErr)
			}
			if s.Times.rule == extendOnce {
				t.Error("the one renewal is to be repeated")
			}
		})
	}
}

// Only the first reason to end a lease should count.
func TestStateEndsOnce(t *testing.T) {
	ends := map[string]func(*State){
		"release": (*State).Release,
		"expiry":  (*State).Expire,
		"revoke":  func(s *State) { s.Revoke(7, "a reason") },
		"taken":   func(s *State) { s.Lose(End{Reason: Missing, Name: "n"}) },
	}
	for first, end := range ends {
		for second, other := range ends {
			s := newState(10 * time.Second)
			end(s)
			before := s.End()
			if !s.DetectEnd() {
				t.Errorf("%s: it has not ended", first)
			}
			other(s)
			if s.End() != before || !before.Reason.IsEnd() || s.DetectEnd() {
				t.Errorf("%s, then %s: %+v, want %+v, once", first, second, s.End(), before)
			}
			if lost := s.Reason().IsLoss(); lost == (first == "release") {
				t.Errorf("%s: lost %t", first, lost)
			}
		}
	}
}

func TestStateRevoke(t *testing.T) {
	for _, test := range []struct {
		fence uint64
		name  string // the lost name
	}{{6, ""}, {7, "n"}, {8, "n"}} {
		s := newState(10 * second)
		s.changeExtra().more = []Named{{"m", 9}}
		s.Revoke(test.fence, "too slow")
		want := End{Reason: Revoked, Name: test.name, Message: "too slow"}
		if test.name == "" {
			want = End{Name: "n"}
		}
		if s.End() != want {
			t.Errorf("fence %d: %+v, want %+v", test.fence, s.End(), want)
		}
	}
}

func TestStateMerge(t *testing.T) {
	a, b := newState(10*second), newState(4*second)
	b.Name, b.fence = "b", 8
	tryA, tryB := new(Unanswered), new(Unanswered)
	a.extra = &stateExtra{unanswered: tryA}
	b.extra = &stateExtra{more: []Named{{"c", 9}}, unanswered: tryB}
	b.Times.changeExtra().minHoldUntil = second
	a.Merge(b)
	if a.Unanswered() != tryA || tryA.Next != tryB {
		t.Error("a try without an answer is forgotten")
	}
	if a.Times.deadline != b.Times.deadline || a.Times.renewAt != b.Times.renewAt || a.Times.readExtra().minHoldUntil != second {
		t.Errorf("deadline %v, renewal %v, MinHold %v; want the stricter ones", a.Times.deadline, a.Times.renewAt, a.Times.readExtra().minHoldUntil)
	}
	for name, fence := range map[string]uint64{"n": 7, "b": 8, "c": 9, "d": 0} {
		if a.FenceOf(name) != fence || a.Holds(name) != (fence != 0) {
			t.Errorf("%s: fence %d, held %t; want fence %d", name, a.FenceOf(name), a.Holds(name), fence)
		}
	}
	requests := a.AppendExtends(nil, "client", second)
	if len(requests) != 3 || requests[2].Name != "c" || requests[2].Fence != 9 || requests[0].Weight != 1 {
		t.Errorf("requests %+v", requests)
	}
	lost := driver.ErrLost
	unknown := errors.New("unknown")
	for want, errs := range map[string][]error{"c": {unknown, nil, lost}, "b": {nil, lost, unknown}, "n": {lost, lost, lost}} {
		if name, err := a.Result(errs); name != want || !errors.Is(err, lost) {
			t.Errorf("%v: %s: %v, want the loss of %s", errs, name, err, want)
		}
	}
	a.BeginResize(1, 1)
	if r := a.AppendExtends(nil, "client", second)[0]; r.Weight != 0 || r.Limit != 0 {
		t.Errorf("weight %d of %d during a change, want none", r.Weight, r.Limit)
	}
}

// A lease with several groups of names counts as acquired once it contains all groups.
func TestStateBeginsWhole(t *testing.T) {
	for name, test := range map[string]struct {
		minHold, maxHold                              time.Duration
		noRenew                                       bool
		deadline, renewAt, minHoldUntil, maxHoldUntil time.Duration
		rule                                          rule
		reason                                        Reason // why it ends at the deadline
	}{
		"renewed":            {deadline: 9800 * time.Millisecond, renewAt: 9800 * time.Millisecond / 3, maxHoldUntil: clock.Never, reason: Expired},
		"MinHold":            {minHold: 20 * second, deadline: 9800 * time.Millisecond, renewAt: 9800 * time.Millisecond / 3, minHoldUntil: 22 * second, maxHoldUntil: clock.Never, reason: Expired},
		"MaxHold is longer":  {maxHold: 20 * second, deadline: 9800 * time.Millisecond, renewAt: 9800 * time.Millisecond / 3, maxHoldUntil: 22 * second, reason: Expired},
		"MaxHold is shorter": {maxHold: 3 * second, deadline: 5 * second, renewAt: 9800 * time.Millisecond / 3, maxHoldUntil: 5 * second, reason: MaxHold},
		"NoRenew":            {noRenew: true, deadline: 9800 * time.Millisecond, renewAt: 2 * second, maxHoldUntil: clock.Never, rule: extendOnce, reason: Expired},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(10 * second)
			s.Times.BeginWhole(2*second, test.minHold, test.maxHold, test.noRenew)
			if s.Times.deadline != test.deadline || s.Times.renewAt != test.renewAt || s.Times.rule != test.rule {
				t.Errorf("deadline %v, renewal at %v, rule %d; want %v, %v, %d", s.Times.deadline, s.Times.renewAt, s.Times.rule, test.deadline, test.renewAt, test.rule)
			}
			if s.Times.readExtra().minHoldUntil != test.minHoldUntil || s.Times.maxHoldUntil() != test.maxHoldUntil {
				t.Errorf("MinHold until %v, MaxHold until %v; want %v, %v", s.Times.readExtra().minHoldUntil, s.Times.maxHoldUntil(), test.minHoldUntil, test.maxHoldUntil)
			}
			s.ExpireAt(s.Times.deadline, 0, errSilent)
			if why := s.Reason(); why != test.reason {
				t.Errorf("lost because of %d, want %d", why, test.reason)
			}
		})
	}
}

// A renewal in progress may be waiting for a server that no longer exists.
func TestStateSendsAgain(t *testing.T) {
	s := newState(10 * second)
	s.Times.Send()
	if s.Times.SendAgain(5*second, 4*second); !s.Times.IsDue(5*second, 0) {
		t.Error("it is not due")
	}
}

// A lost lease's error is the failed renewal's, even if the next renewal gets no answer.
func TestStateKeepsTheReason(t *testing.T) {
	refused := &driver.UnavailableError{Op: "extend", Cause: errors.New("connection refused")}
	for _, failed := range []bool{false, true} {
		s, want := newState(10*second), errSilent
		s.Times.Send()
		if failed {
			s.RecordRenewal(5*second, 4*second, 10*second, 1, refused, 6*second)
			want = refused
			s.Times.Send()
		}
		s.Times.RecordNoAnswer(errSilent)
		s.ExpireAt(s.Times.deadline, 0, errSilent)
		if !errors.Is(s.End().Cause, want) {
			t.Errorf("failed before: %v, lost because of %v, want %v", failed, s.End().Cause, want)
		}
	}
}

// The answer to a late request counts, and a failure older than a success does not.
func TestStateRecordsLateAnswers(t *testing.T) {
	s := newState(10 * second)
	s.Times.Send()
	s.Times.Send()
	if !s.Times.Awaits(4*second) || !s.Times.Awaits(6*second) {
		t.Error("it needs no answer")
	}
	s.RecordRenewal(7*second, 4*second, 10*second, 1, nil, clock.Never)
	if s.Times.deadline != 13800*time.Millisecond || s.Times.readExtra().renewErr != nil || s.Times.Awaits(6*second) {
		t.Errorf("deadline %v, error %v after a late answer", s.Times.deadline, s.Times.readExtra().renewErr)
	}
	s.Times.Send()
	s.RecordRenewal(9*second, 8*second, 10*second, 1, nil, clock.Never)
	renewAt := s.Times.renewAt
	s.RecordRenewal(9*second, 6*second, 10*second, 1, driver.ErrUnavailable, 9*second)
	if s.Times.renewAt != renewAt || s.Times.readExtra().renewErr != nil {
		t.Errorf("renewal at %v, error %v after an old failure", s.Times.renewAt, s.Times.readExtra().renewErr)
	}
}

// While a renewal is in flight, another renewal's failure should not send a third.
func TestStateAwaitsTheLastRenewal(t *testing.T) {
	s := newState(10 * second)
	s.Times.Send()
	s.Times.Send()
	renewAt := s.Times.renewAt
	s.RecordRenewal(7*second, 4*second, 10*second, 1, driver.ErrUnavailable, 7*second)
	if s.Times.renewAt != renewAt {
		t.Errorf("renewal at %v, want %v", s.Times.renewAt, renewAt)
	}
	s.RecordRenewal(7*second, 6*second, 10*second, 1, driver.ErrUnavailable, 7500*time.Millisecond)
	if s.Times.renewAt != 7500*time.Millisecond {
		t.Errorf("renewal at %v after the last failure", s.Times.renewAt)
	}
}

// A TTL requested by the caller must also apply to later renewals.
func TestStateConfirms(t *testing.T) {
	s := newState(10 * second)
	s.Times.changeExtra().renewErr = driver.ErrUnavailable
	s.Times.Confirm(2*second, 2*second, 30*second, 20*second)
	if s.Reason() != Held || s.Times.readExtra().renewErr != nil || s.Times.deadline != 31400*time.Millisecond || s.Times.RenewalTTL(3*second) != 20*second {
		t.Errorf("reason %d, %v, deadline %v, next TTL %v; want it confirmed until 31.4s, and then 20s", s.Reason(), s.Times.readExtra().renewErr, s.Times.deadline, s.Times.RenewalTTL(3*second))
	}
}

func TestStateRenewalTTL(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*State)
		want   time.Duration
	}{
		"its own":           {func(*State) {}, 10 * second},
		"with MinHold":      {func(s *State) { s.Times.changeExtra().minHoldUntil = 20 * second }, 17 * second},
		"to MaxHold":        {func(s *State) { s.Times.changeExtra().maxHoldUntil = 8 * second }, 5 * second},
		"past MaxHold":      {func(s *State) { s.Times.changeExtra().maxHoldUntil = 2 * second }, time.Millisecond},
		"NoRenew":           {func(s *State) { s.Times.rule = fixed }, time.Millisecond},
		"once":              {func(s *State) { s.Times.beginOnce(0) }, 7 * second},
		"once, later":       {func(s *State) { s.Times.beginOnce(second) }, 8 * second},
		"once with MinHold": {func(s *State) { s.Times.rule, s.Times.changeExtra().minHoldUntil = extendOnce, 12*second }, 9 * second},
	} {
		s := newState(10 * second)
		test.change(s)
		if got := s.Times.RenewalTTL(3 * second); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// The store may still have a lease that the client ended.
func TestStateRemains(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*State)
		want bool
	}{
		"expired here":                   {(*State).Expire, true},
		"taken, by a majority of nodes":  {func(s *State) { s.Lose(End{Reason: Missing, Name: "n"}) }, true},
		"revoked":                        {func(s *State) { s.Revoke(8, "") }, false},
		"revoked, with further names":    {func(s *State) { s.changeExtra().more = []Named{{"m", 9}}; s.Revoke(8, "") }, true},
		"released, which does the rest":  {(*State).Release, false},
		"the client is closed: the same": {func(s *State) { s.Lose(End{Reason: Closed}) }, false},
	} {
		s := newState(10 * second)
		if test.end(s); s.MayRemain() != test.want {
			t.Errorf("%s: %t, want %t", name, !test.want, test.want)
		}
	}
}

func TestStateHeadroom(t *testing.T) {
	s := newState(10 * second)
	for now, want := range map[time.Duration]float64{0: 1, 4900 * time.Millisecond: 0.5, 9800 * time.Millisecond: 0, 20 * second: 0} {
		if got := s.Times.Headroom(now); got != want {
			t.Errorf("at %v: %v, want %v", now, got, want)
		}
	}
	if s.Times.rule = fixed; s.Times.Headroom(9*second) != 1 {
		t.Error("a lease without renewal has no headroom to lose")
	}
}

// Most leases have no extra state: reading it, or forgetting an error, adds none.
func TestStateWithoutExtra(t *testing.T) {
	s := newState(10 * second)
	s.Times.setRenewErr(nil)
	s.Times.LimitHold(second, 0, second, 0)
	s.RecordRenewal(5*second, 4*second, 10*second, 1, nil, clock.Never)
	if s.extra != nil || s.Times.extra != nil || s.Times.maxHoldUntil() != clock.Never || len(s.Names()) != 1 {
		t.Errorf("extra state %+v, %+v", s.extra, s.Times.extra)
	}
	s.Times.setRenewErr(driver.ErrUnavailable)
	s.RecordRenewal(5*second, 4*second, 10*second, 1, nil, clock.Never)
	if s.Times.extra != nil {
		t.Errorf("extra state %+v after a failure has passed", s.Times.extra)
	}
	for name, x := range map[string]timesExtra{
		"minHoldUntil": {minHoldUntil: 1}, "maxHoldUntil": {maxHoldUntil: 1}, "onceFrom": {onceFrom: 1}, "storedUntil": {storedUntil: 1},
	} {
		s.Times.extra = &x
		s.Times.setRenewErr(driver.ErrUnavailable)
		if s.Times.setRenewErr(nil); s.Times.extra == nil {
			t.Errorf("%s is forgotten with the error of a renewal", name)
		}
	}
}

// A weight without an answer counts as the smaller weight, and a change is kept while it can
// still arrive.
func TestStateResizes(t *testing.T) {
	at := time.Unix(1, 0)
	for name, test := range map[string]struct {
		from, to int
		change   func(s *State, r Resize)
		want     Weight
		late     bool
	}{
		"made":                     {2, 1, func(s *State, _ Resize) { s.Resized(1, 2, 9) }, Weight{1, 2, false}, false},
		"in progress, smaller":     {2, 1, func(*State, Resize) {}, Weight{1, 2, true}, false},
		"in progress, larger":      {1, 2, func(*State, Resize) {}, Weight{1, 2, true}, false},
		"not made":                 {2, 1, func(s *State, r Resize) { s.EndResize(r, true) }, Weight{2, 2, false}, false},
		"an attempt had no answer": {2, 1, func(s *State, r Resize) { s.AddLate(1, at); s.EndResize(r, true) }, Weight{2, 2, true}, true},
		"without an answer":        {2, 1, func(s *State, r Resize) { s.AddLate(1, at); s.EndResize(r, false) }, Weight{1, 2, true}, true},
	} {
		s := Granted(driver.AcquireRequest{Name: "n", Weight: test.from, Limit: 2}, 7, second)
		test.change(&s, s.BeginResize(test.to, 2))
		if s.Weight() != test.want || (s.LateResize() != nil) != test.late {
			t.Errorf("%s: %+v, late %+v; want %+v, late %t", name, s.Weight(), s.LateResize(), test.want, test.late)
		}
		if until := s.UnansweredUntil(); until.IsZero() == test.late {
			t.Errorf("%s: unanswered until %v", name, until)
		}
	}
}

// The error of a request says why the store no longer has a lease, without being another error.
func TestMissingEnd(t *testing.T) {
	wrong := &driver.WrongTypeError{Op: "extend", Name: "n", Cause: errors.New("WRONGTYPE")}
	for _, test := range []struct {
		err   error
		cause string
	}{
		{driver.ErrLost, ""},
		{fmt.Errorf("%w: a newer fence", driver.ErrLost), "a newer fence"},
		{errors.Join(driver.ErrLost, wrong), strings.TrimPrefix(wrong.Error(), "dibs: ")},
	} {
		e := MissingEnd("n", test.err)
		switch {
		case e.Reason != Missing || e.Name != "n" || (e.Cause == nil) != (test.cause == ""):
			t.Errorf("%v: %+v", test.err, e)
		case e.Cause != nil && (e.Cause.Error() != test.cause || errors.Is(e.Cause, driver.ErrWrongType)):
			t.Errorf("%v: cause %v, want %q", test.err, e.Cause, test.cause)
		}
	}
}

// A lease that the store may have lost should be renewed, unless it was renewed since, or is being
// renewed.
func TestStateDoubts(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*State)
		since  time.Duration
		due    bool
	}{
		"renewed before":           {func(*State) {}, 5 * second, true},
		"renewed at this time":     {func(*State) {}, 4 * second, true},
		"renewed since":            {func(*State) {}, 4*second - 1, false},
		"a renewal is on its way":  {func(s *State) { s.Times.Send() }, 5 * second, false},
		"a renewal has no success": {func(s *State) { s.RecordRenewal(5*second, 5*second, 10*second, 1, errSilent, 7*second) }, 5 * second, true},
	} {
		s := newState(10 * second)
		s.RecordRenewal(5*second, 4*second, 10*second, 1, nil, clock.Never)
		test.change(s)
		if s.Times.Doubt(6*second, test.since); (s.Times.renewAt == 6*second) != test.due {
			t.Errorf("%s: renewal at %v, want it now: %t", name, s.Times.renewAt, test.due)
		}
	}
}

// If the answer to a renewal would be too late, the renewal waits, for half of the remaining
// time. But in the first half of its time none waits, however slow the store is.
func TestStatePostpones(t *testing.T) {
	for name, test := range map[string]struct {
		now, needs, renewAt time.Duration // renewAt: zero if it is sent
	}{
		"fast store":             {now: 9 * second},
		"in time":                {now: 7 * second, needs: 2160 * time.Millisecond},
		"too late":               {now: 7 * second, needs: 2161 * time.Millisecond, renewAt: 8400 * time.Millisecond},
		"slow store, first half": {now: 4800 * time.Millisecond, needs: time.Minute},
		"slow store":             {now: 4801 * time.Millisecond, needs: time.Minute, renewAt: 4801*time.Millisecond + 4999*time.Millisecond/2},
		"near the end":           {now: 9790 * time.Millisecond, needs: second, renewAt: 9800 * time.Millisecond},
	} {
		s := newState(10 * second)
		before := s.Times.renewAt
		postponed := s.Times.Postpone(test.now, test.needs)
		if want := max(test.renewAt, before); postponed != (test.renewAt > 0) || s.Times.renewAt != want {
			t.Errorf("%s: postponed %t, to %v; want %v", name, postponed, s.Times.renewAt, want)
		}
	}
}

// A request without an answer may take effect until its time is over by the store's clock.
func TestStateUnanswered(t *testing.T) {
	at := time.Unix(1, 0)
	s := newState(10 * second)
	wantUntil := func(what string, until time.Time) {
		t.Helper()
		if u := s.UnansweredUntil(); !u.Equal(until) {
			t.Errorf("%s: unanswered until %v, want %v", what, u, until)
		}
	}
	wantUntil("nothing", time.Time{})
	s.AddUnanswered(driver.AcquireRequest{Name: "n"}, at.Add(second))
	s.AddUnanswered(driver.AcquireRequest{Name: "n"}, at)
	wantUntil("acquires", at.Add(second+clock.Slack))
	s.AddLate(2, at.Add(3*second))
	if before := s.AddLate(1, at); before.Weight != 2 || s.LateResize().Weight != 1 {
		t.Errorf("late %+v after %+v", s.LateResize(), before)
	}
	wantUntil("a change of the weight after another one", at.Add(3*second+clock.Slack))
}

// A cancel is repeated for as long as the store may keep the lease. This is longer than its TTL
// after a request with another TTL, and while a renewal may arrive.
func TestStateStoredFor(t *testing.T) {
	longer := func(s *State) { s.Times.MayExtend(2*second, 30*second) }
	for name, test := range map[string]struct {
		change func(*State)
		want   time.Duration // four seconds after its beginning
	}{
		"its TTL":                        {func(*State) {}, 10 * second},
		"MinHold":                        {func(s *State) { s.Times.LimitHold(0, 20*second, 0, 0) }, 16 * second},
		"a longer extension":             {longer, 28 * second},
		"a longer extension of a part":   {func(s *State) { part := newState(10 * second); longer(part); s.Merge(part) }, 28 * second},
		"a shorter TTL from now on":      {func(s *State) { s.Times.Confirm(2*second, 2*second, 4*second, 4*second) }, 8 * second},
		"a renewal on its way":           {func(s *State) { s.Times.Send() }, 15800 * time.Millisecond},
		"a renewal on its way, too late": {func(s *State) { s.Times.Send(); s.Times.deadline = 3 * second }, 10 * second},
		"attached, with an unknown TTL":  {func(s *State) { *s = Attached([]Named{{"n", 7}}, "token", 0, 10*second) }, driver.MaxTTL - 4*second},
	} {
		s := newState(10 * second)
		test.change(s)
		if d := s.Times.StoredFor(4 * second); d != test.want || s.AcquireRequest("client", 4*second).TTL != d {
			t.Errorf("%s: %v, and a cancel for %v; want %v", name, d, s.AcquireRequest("client", 4*second).TTL, test.want)
		}
	}
}
