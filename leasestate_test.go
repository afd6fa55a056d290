package dibs

import (
	"errors"
	"testing"
	"time"
	"unsafe"
)

const second = time.Second

// newState returns a lease of a TTL that began at zero and is renewed.
func newState(ttl time.Duration) *leaseState {
	s := &leaseState{name: "n", token: "token", fence: 7, weight: 1, limit: 1, ttl: ttl}
	s.begin(false, 0, 0, ttl, false, 0)
	return s
}

func TestMargin(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		10 * second:            200 * time.Millisecond,
		100 * time.Millisecond: 2 * time.Millisecond,
		10 * time.Millisecond:  2 * time.Millisecond,
	} {
		if got := margin(ttl); got != want {
			t.Errorf("margin of a TTL of %v: %v, want %v", ttl, got, want)
		}
	}
}

func TestLeaseStateBegins(t *testing.T) {
	for name, test := range map[string]struct {
		noRenew, lift bool
		now, maxHold  time.Duration
		spread        float64
		rule          renewal
		renewAt       time.Duration
	}{
		"renewed":                  {renewAt: 9800 * time.Millisecond / 3},
		"spread":                   {spread: 0.5, renewAt: 9800 * time.Millisecond / 4},
		"after a long wait":        {now: 6 * second, renewAt: 6*second + 3800*time.Millisecond/3},
		"NoRenew":                  {noRenew: true, rule: fixed, renewAt: never},
		"NoRenew after a hand-off": {noRenew: true, lift: true, rule: extendOnce, renewAt: 9800 * time.Millisecond / 3},
		"MaxHold is the TTL":       {maxHold: 10 * second, renewAt: never},
		"MaxHold is longer":        {maxHold: 11 * second, renewAt: 9800 * time.Millisecond / 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := &leaseState{ttl: 10 * second}
			s.limitHold(0, 0, 0, test.maxHold)
			s.begin(test.noRenew, test.now, 0, 10*second, test.lift, test.spread)
			if s.deadline != 9800*time.Millisecond || s.rule != test.rule || s.renewAt != test.renewAt {
				t.Errorf("deadline %v, rule %d, renewal at %v; want 9.8s, %d, %v", s.deadline, s.rule, s.renewAt, test.rule, test.renewAt)
			}
		})
	}
}

func TestLeaseStateActs(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*leaseState)
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
		"a renewal is in progress":       {change: func(s *leaseState) { s.sendRenewal() }, now: 9 * second},
		"early after a failure":          {change: func(s *leaseState) { s.changeExtra().renewErr = ErrUnavailable }, now: 3167 * time.Millisecond},
		"at the deadline":                {now: 9800 * time.Millisecond, ended: ReasonExpired},
		"at the deadline, in a renewal":  {change: func(s *leaseState) { s.sendRenewal() }, now: 9800 * time.Millisecond, ended: ReasonExpired},
		"at the end of MaxHold":          {change: func(s *leaseState) { s.maxHoldReached = true }, now: 9800 * time.Millisecond, ended: ReasonMaxHold},
		"after its release":              {change: (*leaseState).release, now: 9800 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(10 * second)
			if test.change != nil {
				test.change(s)
			}
			renew := s.isDue(test.now, test.late)
			s.expireAt(test.now, 0, errNoAnswer)
			reason, _ := s.lostReason()
			if renew != test.renew || reason != test.ended {
				t.Errorf("renew %t, lost because %q; want %t, %q", renew, reason, test.renew, test.ended)
			}
			s.renewAt = min(s.renewAt, test.now)
			if renew && (!s.sendRenewal() || s.isDue(test.now, test.late)) {
				t.Error("not renewed, or renewed twice")
			}
		})
	}
}

func TestLeaseStateRecordsRenewals(t *testing.T) {
	unavailable := &UnavailableError{Op: "extend"}
	for name, test := range map[string]struct {
		change            func(*leaseState)
		names             int
		err               error
		deadline, renewAt time.Duration
	}{
		"success":                  {names: 1, deadline: 13800 * time.Millisecond, renewAt: 4*second + 10*second/3},
		"names were added":         {change: func(s *leaseState) { s.changeExtra().moreNames = []fencedName{{"m", 8}} }, names: 1, deadline: 9800 * time.Millisecond, renewAt: 5 * second},
		"failure":                  {names: 1, err: unavailable, deadline: 9800 * time.Millisecond, renewAt: 5125 * time.Millisecond},
		"failure near the end":     {change: func(s *leaseState) { s.deadline = 5100 * time.Millisecond }, names: 1, err: unavailable, deadline: 5100 * time.Millisecond, renewAt: 5025 * time.Millisecond},
		"failure at the very end":  {change: func(s *leaseState) { s.deadline = 5001 * time.Millisecond }, names: 1, err: unavailable, deadline: 5001 * time.Millisecond, renewAt: 5010 * time.Millisecond},
		"the one renewal":          {change: func(s *leaseState) { s.rule = extendOnce }, names: 1, deadline: 13800 * time.Millisecond, renewAt: never},
		"the last one in MaxHold":  {change: func(s *leaseState) { s.changeExtra().maxHoldUntil = 14 * second }, names: 1, deadline: 13800 * time.Millisecond, renewAt: never},
		"never a shorter deadline": {change: func(s *leaseState) { s.deadline = 20 * second }, names: 1, deadline: 20 * second, renewAt: 4*second + 10*second/3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(10 * second)
			s.sendRenewal()
			if test.change != nil {
				test.change(s)
			}
			s.recordRenewal(5*second, 4*second, 10*second, test.names, test.err, s.retryAt(5*second).Truncate(time.Millisecond))
			if s.deadline != test.deadline || s.renewAt != test.renewAt {
				t.Errorf("deadline %v, next renewal %v; want %v, %v", s.deadline, s.renewAt, test.deadline, test.renewAt)
			}
			if s.attempts > 0 || !errors.Is(s.extra().renewErr, test.err) {
				t.Errorf("%d in progress, error %v", s.attempts, s.extra().renewErr)
			}
			if s.rule == extendOnce {
				t.Error("the one renewal is to be repeated")
			}
		})
	}
}

// Whatever ends a lease first is why it has ended.
func TestLeaseStateEndsOnce(t *testing.T) {
	ends := map[string]func(*leaseState){
		"release": (*leaseState).release,
		"expiry":  (*leaseState).expire,
		"revoke":  func(s *leaseState) { s.revoke(7, "a reason") },
		"taken":   func(s *leaseState) { s.lose("n", ReasonTaken, nil, "") },
	}
	for first, end := range ends {
		for second, other := range ends {
			s := newState(10 * time.Second)
			end(s)
			err := s.err
			other(s)
			if !s.ended || err == nil || !errors.Is(s.err, err) {
				t.Errorf("%s, then %s: error %v, want %v", first, second, s.err, err)
			}
			if _, lost := s.lostReason(); lost == (first == "release") {
				t.Errorf("%s: lost %t", first, lost)
			}
		}
	}
}

func TestLeaseStateRevoke(t *testing.T) {
	for _, test := range []struct {
		fence uint64
		name  string // that is lost
	}{{6, ""}, {7, "n"}, {8, "n"}} {
		s := newState(10 * second)
		s.changeExtra().moreNames = []fencedName{{"m", 9}}
		s.revoke(test.fence, "too slow")
		var lost *LostError
		errors.As(s.err, &lost)
		switch {
		case test.name == "" && s.err != nil:
			t.Errorf("fence %d: %v, want no change", test.fence, s.err)
		case test.name != "" && (lost == nil || lost.Name != test.name || lost.Reason != ReasonRevoked || lost.Message != "too slow"):
			t.Errorf("fence %d: %+v, want %s revoked", test.fence, lost, test.name)
		}
	}
}

func TestLeaseStateMerge(t *testing.T) {
	a, b := newState(10*second), newState(4*second)
	b.name, b.fence = "b", 8
	tryA, tryB := new(unansweredTry), new(unansweredTry)
	a.someExtra = &leaseExtra{unanswered: tryA}
	b.someExtra = &leaseExtra{moreNames: []fencedName{{"c", 9}}, minHoldUntil: second, unanswered: tryB}
	a.merge(b)
	if a.extra().unanswered != tryA || tryA.next != tryB {
		t.Error("a try without an answer is forgotten")
	}
	if a.deadline != b.deadline || a.renewAt != b.renewAt || a.extra().minHoldUntil != second {
		t.Errorf("deadline %v, renewal %v, MinHold %v; want the stricter ones", a.deadline, a.renewAt, a.extra().minHoldUntil)
	}
	for name, fence := range map[string]uint64{"n": 7, "b": 8, "c": 9, "d": 0} {
		if a.fenceOf(name) != fence || a.holds(name) != (fence != 0) {
			t.Errorf("%s: fence %d, held %t; want fence %d", name, a.fenceOf(name), a.holds(name), fence)
		}
	}
	requests := a.extendRequests(nil, "client", second)
	if len(requests) != 3 || requests[2].Name != "c" || requests[2].Fence != 9 || requests[0].Weight != 1 {
		t.Errorf("requests %+v", requests)
	}
	lost := error(&LostError{})
	unknown := errors.New("unknown")
	for want, errs := range map[string][]error{"c": {unknown, nil, lost}, "b": {nil, lost, unknown}, "n": {lost, lost, lost}} {
		if name, err := a.extendResult(errs); name != want || !errors.Is(err, lost) {
			t.Errorf("%v: %s: %v, want the loss of %s", errs, name, err, want)
		}
	}
	a.weightUnsure = true
	if r := a.extendRequests(nil, "client", second)[0]; r.Weight != 0 || r.Limit != 0 {
		t.Errorf("weight %d of %d during a change, want none", r.Weight, r.Limit)
	}
}

// A lease of several groups of names counts as acquired when it has all of them.
func TestLeaseStateBeginsWhole(t *testing.T) {
	for name, test := range map[string]struct {
		minHold, maxHold                              time.Duration
		noRenew                                       bool
		deadline, renewAt, minHoldUntil, maxHoldUntil time.Duration
		rule                                          renewal
		reason                                        Reason // why it ends at the deadline
	}{
		"renewed":            {deadline: 9800 * time.Millisecond, renewAt: 9800 * time.Millisecond / 3, maxHoldUntil: never, reason: ReasonExpired},
		"MinHold":            {minHold: 20 * second, deadline: 9800 * time.Millisecond, renewAt: 9800 * time.Millisecond / 3, minHoldUntil: 22 * second, maxHoldUntil: never, reason: ReasonExpired},
		"MaxHold is longer":  {maxHold: 20 * second, deadline: 9800 * time.Millisecond, renewAt: 9800 * time.Millisecond / 3, maxHoldUntil: 22 * second, reason: ReasonExpired},
		"MaxHold is shorter": {maxHold: 3 * second, deadline: 5 * second, renewAt: 9800 * time.Millisecond / 3, maxHoldUntil: 5 * second, reason: ReasonMaxHold},
		"NoRenew":            {noRenew: true, deadline: 9800 * time.Millisecond, renewAt: 2 * second, maxHoldUntil: never, rule: extendOnce, reason: ReasonExpired},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(10 * second)
			s.beginWhole(2*second, test.minHold, test.maxHold, test.noRenew)
			if s.deadline != test.deadline || s.renewAt != test.renewAt || s.rule != test.rule {
				t.Errorf("deadline %v, renewal at %v, rule %d; want %v, %v, %d", s.deadline, s.renewAt, s.rule, test.deadline, test.renewAt, test.rule)
			}
			if s.extra().minHoldUntil != test.minHoldUntil || s.maxHoldUntil() != test.maxHoldUntil {
				t.Errorf("MinHold until %v, MaxHold until %v; want %v, %v", s.extra().minHoldUntil, s.maxHoldUntil(), test.minHoldUntil, test.maxHoldUntil)
			}
			s.expireAt(s.deadline, 0, errNoAnswer)
			if why, _ := s.lostReason(); why != test.reason {
				t.Errorf("lost because %q, want %q", why, test.reason)
			}
		})
	}
}

// A renewal in progress may be waiting for a server that no longer exists.
func TestLeaseStateRenewsNow(t *testing.T) {
	s := newState(10 * second)
	s.sendRenewal()
	if s.renewNow(5 * second); !s.isDue(5*second, 0) {
		t.Error("it is not due")
	}
}

// The error of a lost lease is that of the renewal that failed, also if the next one has no answer.
func TestLeaseStateKeepsTheReason(t *testing.T) {
	refused := &UnavailableError{Op: "extend", Cause: errors.New("connection refused")}
	for _, failed := range []bool{false, true} {
		s, want := newState(10*second), error(errNoAnswer)
		s.sendRenewal()
		if failed {
			s.recordRenewal(5*second, 4*second, 10*second, 1, refused, 6*second)
			want = refused
			s.sendRenewal()
		}
		s.recordNoAnswer(errNoAnswer)
		s.expireAt(s.deadline, 0, errNoAnswer)
		if !errors.Is(s.err, want) {
			t.Errorf("failed before: %v, lost because of %v, want %v", failed, s.err, want)
		}
	}
}

// The answer to a late request counts, and a failure that is older than a success does not.
func TestLeaseStateRecordsLateAnswers(t *testing.T) {
	s := newState(10 * second)
	s.sendRenewal()
	s.sendRenewal()
	if !s.awaits(4*second) || !s.awaits(6*second) {
		t.Error("it needs no answer")
	}
	s.recordRenewal(7*second, 4*second, 10*second, 1, nil, never)
	if s.deadline != 13800*time.Millisecond || s.extra().renewErr != nil || s.awaits(6*second) {
		t.Errorf("deadline %v, error %v after a late answer", s.deadline, s.extra().renewErr)
	}
	s.sendRenewal()
	s.recordRenewal(9*second, 8*second, 10*second, 1, nil, never)
	renewAt := s.renewAt
	s.recordRenewal(9*second, 6*second, 10*second, 1, ErrUnavailable, 9*second)
	if s.renewAt != renewAt || s.extra().renewErr != nil {
		t.Errorf("renewal at %v, error %v after an old failure", s.renewAt, s.extra().renewErr)
	}
}

// While a renewal is on its way, the failure of another one sends no third one.
func TestLeaseStateAwaitsTheLastRenewal(t *testing.T) {
	s := newState(10 * second)
	s.sendRenewal()
	s.sendRenewal()
	renewAt := s.renewAt
	s.recordRenewal(7*second, 4*second, 10*second, 1, ErrUnavailable, 7*second)
	if s.renewAt != renewAt {
		t.Errorf("renewal at %v, want %v", s.renewAt, renewAt)
	}
	s.recordRenewal(7*second, 6*second, 10*second, 1, ErrUnavailable, 7500*time.Millisecond)
	if s.renewAt != 7500*time.Millisecond {
		t.Errorf("renewal at %v after the last failure", s.renewAt)
	}
}

// A TTL that the caller has asked for is that of later renewals, too.
func TestLeaseStateConfirms(t *testing.T) {
	s := newState(10 * second)
	s.err, s.changeExtra().renewErr = ErrUnavailable, ErrUnavailable
	s.confirm(2*second, 2*second, 30*second, 20*second)
	if s.err != nil || s.extra().renewErr != nil || s.deadline != 31400*time.Millisecond || s.renewalTTL(3*second) != 20*second {
		t.Errorf("%v, %v, deadline %v, next TTL %v; want it confirmed until 31.4s, and then 20s", s.err, s.extra().renewErr, s.deadline, s.renewalTTL(3*second))
	}
}

func TestLeaseStateRenewalTTL(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*leaseState)
		want   time.Duration
	}{
		"its own":           {func(*leaseState) {}, 10 * second},
		"with MinHold":      {func(s *leaseState) { s.changeExtra().minHoldUntil = 20 * second }, 17 * second},
		"to MaxHold":        {func(s *leaseState) { s.changeExtra().maxHoldUntil = 8 * second }, 5 * second},
		"past MaxHold":      {func(s *leaseState) { s.changeExtra().maxHoldUntil = 2 * second }, time.Millisecond},
		"NoRenew":           {func(s *leaseState) { s.rule = fixed }, time.Millisecond},
		"once":              {func(s *leaseState) { s.beginOnce(0) }, 7 * second},
		"once, later":       {func(s *leaseState) { s.beginOnce(second) }, 8 * second},
		"once with MinHold": {func(s *leaseState) { s.rule, s.changeExtra().minHoldUntil = extendOnce, 12*second }, 9 * second},
	} {
		s := newState(10 * second)
		test.change(s)
		if got := s.renewalTTL(3 * second); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// The store may still have a lease that the client has ended.
func TestLeaseStateRemains(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*leaseState)
		want bool
	}{
		"expired here":                   {(*leaseState).expire, true},
		"taken, by a majority of nodes":  {func(s *leaseState) { s.lose("n", ReasonTaken, nil, "") }, true},
		"revoked":                        {func(s *leaseState) { s.revoke(8, "") }, false},
		"revoked, with further names":    {func(s *leaseState) { s.changeExtra().moreNames = []fencedName{{"m", 9}}; s.revoke(8, "") }, true},
		"released, which does the rest":  {(*leaseState).release, false},
		"the client is closed: the same": {func(s *leaseState) { s.lose("n", ReasonClosed, nil, "") }, false},
	} {
		s := newState(10 * second)
		if test.end(s); s.mayRemainInStore() != test.want {
			t.Errorf("%s: %t, want %t", name, !test.want, test.want)
		}
	}
}

func TestLeaseStateHeadroom(t *testing.T) {
	s := newState(10 * second)
	for now, want := range map[time.Duration]float64{0: 1, 4900 * time.Millisecond: 0.5, 9800 * time.Millisecond: 0, 20 * second: 0} {
		if got := s.headroom(now); got != want {
			t.Errorf("at %v: %v, want %v", now, got, want)
		}
	}
	if s.rule = fixed; s.headroom(9*second) != 1 {
		t.Error("a lease without renewal has no headroom to lose")
	}
}

// Most leases have no extra state: reading it, or forgetting an error, adds none.
func TestLeaseStateWithoutExtra(t *testing.T) {
	s := newState(10 * second)
	s.setRenewErr(nil)
	s.limitHold(second, 0, second, 0)
	s.recordRenewal(5*second, 4*second, 10*second, 1, nil, never)
	if s.someExtra != nil || s.maxHoldUntil() != never || len(s.names()) != 1 {
		t.Errorf("extra state %+v", s.extra())
	}
	s.setRenewErr(ErrUnavailable)
	s.recordRenewal(5*second, 4*second, 10*second, 1, nil, never)
	if s.someExtra != nil {
		t.Errorf("extra state %+v after a failure has passed", s.extra())
	}
	for name, x := range map[string]leaseExtra{
		"moreNames": {moreNames: []fencedName{{"m", 8}}}, "minHoldUntil": {minHoldUntil: 1}, "maxHoldUntil": {maxHoldUntil: 1},
		"onceFrom": {onceFrom: 1}, "timeout": {timeout: 1}, "resigned": {resigned: ErrResigned},
		"late": {late: new(lateResize)}, "resizeTurn": {resizeTurn: make(chan struct{})}, "storedUntil": {storedUntil: 1}, "unanswered": {unanswered: new(unansweredTry)},
	} {
		s.someExtra = &x
		s.setRenewErr(ErrUnavailable)
		if s.setRenewErr(nil); s.someExtra == nil {
			t.Errorf("%s is forgotten with the error of a renewal", name)
		}
	}
}

// A process may hold a million leases.
func TestLeaseIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(lease{}); size > 208 {
		t.Errorf("a lease has %d bytes, want at most 208, a size class of the allocator", size)
	}
}
