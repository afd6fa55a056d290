package history_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/history"
)

// A script is a history written by hand. Its moments are numbered from 1, and each lasts
// a millisecond.
type script struct{ ops history.History }

func moment(order int) history.Moment {
	return history.Moment{Order: order, At: time.Duration(order) * time.Millisecond}
}

func (s *script) add(op history.Op, call, ret int) *history.Op {
	op.ID, op.Call, op.Return = len(s.ops)+1, moment(call), moment(ret)
	op.Label = fmt.Sprintf("t%d", op.ID)
	s.ops = append(s.ops, &op)
	return &op
}

// acquire adds an Acquire on "n", or on names, with a weight and a limit.
func (s *script) acquire(call, ret, weight, limit int, fence uint64, names ...string) *history.Op {
	if len(names) == 0 {
		names = []string{"n"}
	}
	op := s.add(history.Op{Verb: history.Acquire, Names: names, Weight: weight, Limit: limit, TTL: 10 * time.Second}, call, ret)
	op.Token = "token-" + op.Label
	for range names {
		op.Fences = append(op.Fences, fence)
	}
	return op
}

func (s *script) lock(call, ret int, fence uint64, names ...string) *history.Op {
	return s.acquire(call, ret, 1, 1, fence, names...)
}

func (s *script) reader(call, ret int, fence uint64) *history.Op {
	return s.acquire(call, ret, 1, driver.Unlimited, fence)
}

// held records that a lease is held at a moment.
func (s *script) held(lease *history.Op, when int) {
	s.add(history.Op{Verb: history.Probe, Of: lease.ID, Names: lease.Names, Token: lease.Token}, when, when)
}

func (s *script) unlock(lease *history.Op, call, ret int) *history.Op {
	return s.add(history.Op{Verb: history.Release, Of: lease.ID, Names: lease.Names, Token: lease.Token}, call, ret)
}

// use adds a whole lease: it is acquired, held until the moment before the last, and
// released.
func (s *script) use(call, ret, last int, fence uint64, names ...string) *history.Op {
	op := s.lock(call, ret, fence, names...)
	s.held(op, last-1)
	s.unlock(op, last-1, last)
	return op
}

func (s *script) resize(lease *history.Op, call, ret, weight, limit int, fence uint64) *history.Op {
	return s.add(history.Op{
		Verb: history.Resize, Of: lease.ID, Names: lease.Names, Token: lease.Token, Weight: weight, Limit: limit, Fences: []uint64{fence},
	}, call, ret)
}

func (s *script) inspect(lease *history.Op, call, ret int, name string, tokens ...string) {
	s.add(history.Op{Verb: history.Inspect, Of: lease.ID, Names: []string{name}, Token: lease.Token, Tokens: tokens}, call, ret)
}

func (s *script) revoke(lease *history.Op, call, ret int, name string, revoked bool) {
	s.add(history.Op{Verb: history.Revoke, Names: []string{name}, Token: lease.Token, Revoked: revoked}, call, ret)
}

// revokedPass adds a call with a fence from before another lease's grant. Its own lease is revoked
// at a given moment.
func (s *script) revokedPass(cohort string, revoked int) {
	s.use(5, 6, 8, 7)
	late := s.lock(10, 11, 6)
	late.Cohort = cohort
	s.revoke(late, revoked, revoked+1, "n", true)
}

// refused adds a try with the result busy.
func (s *script) refused(call, ret, weight, limit int) *history.Op {
	op := s.add(history.Op{Verb: history.Acquire, Names: []string{"n"}, Weight: weight, Limit: limit, Try: true, TTL: 10 * time.Second}, call, ret)
	op.Err = &dibs.BusyError{Name: "n"}
	return op
}

func lostTo(name string) error { return &dibs.LostError{Name: name, Reason: dibs.ReasonMissing} }

const many = driver.Unlimited

var scripts = []struct {
	name  string
	write func(s *script)
	want  []history.Rule
}{
	{"sequential leases", func(s *script) { s.use(1, 2, 5, 1); s.use(3, 6, 9, 2) }, nil},
	{"two holders", func(s *script) { s.use(1, 2, 20, 1); s.use(3, 4, 10, 2) }, want(history.Exclusion)},
	{"two leases held at unknown times", func(s *script) { s.lock(1, 2, 1); s.lock(3, 4, 2) }, nil},
	{"the first may have expired", func(s *script) {
		a := s.lock(1, 2, 1)
		s.held(a, 5)
		s.add(history.Op{Verb: history.Probe, Of: a.ID, Err: dibs.ErrLost}, 20, 20)
		s.use(3, 6, 10, 2)
	}, nil},
	{"the first is revoked", func(s *script) {
		a := s.use(1, 2, 20, 1)
		s.revoke(a, 4, 7, "n", true)
		s.use(3, 6, 10, 2)
	}, nil},
	{"the revoke of the first had no effect", func(s *script) {
		a := s.use(1, 2, 20, 1)
		s.revoke(a, 4, 7, "n", false)
		s.use(3, 6, 10, 2)
	}, want(history.Exclusion)},
	{"one of two names is revoked", func(s *script) {
		a := s.use(1, 2, 20, 1, "m", "n")
		s.revoke(a, 4, 7, "n", true)
		s.use(5, 6, 10, 2, "n")
		s.use(11, 12, 14, 2, "m")
	}, want(history.Exclusion)},
	{"reader beside writer", func(s *script) {
		r := s.reader(1, 2, 1)
		s.held(r, 20)
		s.use(3, 4, 10, 2)
	}, want(history.Exclusion)},
	{"reader beside reader", func(s *script) {
		r := s.reader(1, 2, 1)
		s.held(r, 20)
		s.held(s.reader(3, 4, 2), 10)
	}, nil},
	{"a writer is downgraded", func(s *script) {
		w := s.acquire(1, 2, many, many, 1)
		s.resize(w, 5, 7, 1, many, 3)
		s.held(s.reader(3, 6, 4), 15)
		s.held(w, 20)
	}, nil},
	{"a writer is downgraded too late", func(s *script) {
		w := s.acquire(1, 2, many, many, 1)
		s.resize(w, 8, 9, 1, many, 3)
		s.held(s.reader(3, 6, 2), 15)
		s.held(w, 20)
	}, want(history.Exclusion)},
	{"a reader is upgraded beside another", func(s *script) {
		r := s.reader(1, 2, 1)
		s.held(s.reader(3, 4, 2), 15)
		s.resize(r, 5, 6, many, many, 3)
		s.held(r, 20)
	}, want(history.Exclusion)},
	{"an upgrade is refused", func(s *script) {
		r := s.reader(1, 2, 1)
		s.held(s.reader(3, 4, 2), 15)
		s.resize(r, 5, 6, many, many, 1).Err = &dibs.BusyError{Name: "n"}
		s.held(r, 20)
	}, nil},
	{"an upgrade with unknown outcome", func(s *script) {
		r := s.reader(1, 2, 1)
		s.held(s.reader(3, 4, 2), 15)
		s.resize(r, 5, 6, many, many, 1).Err = dibs.ErrUnavailable
		s.held(r, 20)
	}, nil},
	{"all permits", func(s *script) { s.held(s.acquire(1, 2, 2, 3, 1), 20); s.held(s.acquire(3, 4, 1, 3, 2), 20) }, nil},
	{"more than all permits", func(s *script) { s.held(s.acquire(1, 2, 2, 3, 1), 20); s.held(s.acquire(3, 4, 2, 3, 2), 20) }, want(history.Limit)},
	{"MinHold has ended", func(s *script) {
		s.use(1, 2, 5, 1).MinHold = 8 * time.Millisecond
		s.use(4, 9, 12, 2)
	}, nil},
	{"MinHold has not ended", func(s *script) {
		s.use(1, 2, 5, 1).MinHold = 20 * time.Millisecond
		s.use(4, 9, 12, 2)
	}, want(history.Exclusion)},
	{"a fence decreases", func(s *script) { s.use(1, 2, 4, 7); s.use(5, 6, 8, 6) }, want(history.Fences, history.Fences)},
	{"a fence decreases in a hand-off", func(s *script) { s.use(1, 3, 5, 7); s.use(2, 6, 8, 6) }, want(history.Fences)},
	{"readers have fences in any order", func(s *script) { s.held(s.reader(1, 3, 7), 5); s.held(s.reader(2, 6, 6), 8) }, nil},
	{"a cohort passes on a lease before it learns of the revoke", func(s *script) { s.revokedPass("client", 3) }, nil},
	{"a cohort passes on an old fence before the revoke", func(s *script) { s.revokedPass("client", 20) }, want(history.Fences)},
	{"an old fence after a revoke, without a cohort", func(s *script) { s.revokedPass("", 3) }, want(history.Fences)},
	{"a fence repeats", func(s *script) { s.reader(1, 3, 7); s.reader(2, 4, 7) }, want(history.Fences)},
	{"an upgrade without a new fence", func(s *script) {
		r := s.reader(1, 2, 7)
		s.resize(r, 3, 4, many, many, 7)
		s.held(r, 5)
	}, want(history.Fences)},
	{"served by ticket", func(s *script) { queue(s.use(1, 5, 7, 1), 3, 2); queue(s.use(2, 9, 12, 2), 4, 3) }, nil},
	{"not served by ticket", func(s *script) { queue(s.use(1, 9, 12, 2), 3, 2); queue(s.use(2, 5, 7, 1), 4, 3) }, want(history.FIFO)},
	{"passed over", func(s *script) { queue(s.use(1, 9, 12, 2), 3, 2).PassedOver = true; queue(s.use(2, 5, 7, 1), 4, 3) }, nil},
	{"overtaken by a waiter that was passed over", func(s *script) { queue(s.use(1, 9, 12, 2), 3, 2); queue(s.use(2, 5, 7, 1), 4, 3).PassedOver = true }, want(history.FIFO)},
	{"overtaken by a request that does not queue", func(s *script) { queue(s.use(1, 9, 12, 2), 3, 2); s.use(4, 5, 7, 1) }, want(history.FIFO)},
	{"served after an earlier call", func(s *script) { queue(s.use(1, 9, 12, 2), 3, 2); s.use(2, 5, 7, 1) }, nil},
	{"overtaken after a revoke", func(s *script) {
		a := queue(s.use(1, 9, 12, 2), 3, 2)
		s.revoke(a, 3, 4, "n", true)
		s.use(4, 5, 7, 1)
	}, nil},
	{"overtaken after the queue entry may have expired", func(s *script) {
		a := queue(s.use(1, 9, 12, 2), 3, 2)
		a.Call.At -= driver.WaiterTTL
		s.use(4, 5, 7, 1)
	}, nil},
	{"busy while held", func(s *script) { s.use(1, 2, 10, 1); s.refused(4, 5, 1, 1) }, nil},
	{"busy while possibly still held", func(s *script) { s.use(1, 2, 10, 1); s.refused(9, 12, 1, 1) }, nil},
	{"busy after the release", func(s *script) { s.use(1, 2, 10, 1); s.refused(11, 12, 1, 1) }, want(history.Busy)},
	{"busy during MinHold", func(s *script) {
		s.use(1, 2, 10, 1).MinHold = 5 * time.Millisecond
		s.refused(11, 12, 1, 1)
	}, nil},
	{"busy beside a lease with unknown outcome", func(s *script) {
		s.unlock(s.lock(1, 2, 1), 4, 5).Err = dibs.ErrUnavailable
		s.refused(11, 12, 1, 1)
	}, nil},
	{"busy beside a request that gave up", func(s *script) {
		s.lock(1, 2, 0).Err = &dibs.BusyError{Name: "n"}
		s.refused(11, 12, 1, 1)
	}, nil},
	{"reader busy beside a reader", func(s *script) { s.held(s.reader(1, 2, 1), 20); s.refused(4, 5, 1, many) }, want(history.Busy)},
	{"busy with enough permits", func(s *script) { s.held(s.acquire(1, 2, 1, 3, 1), 20); s.refused(4, 5, 2, 3) }, want(history.Busy)},
	{"busy without enough permits", func(s *script) { s.held(s.acquire(1, 2, 2, 3, 1), 20); s.refused(4, 5, 2, 3) }, nil},
	{"busy beside a busy try", func(s *script) { s.refused(1, 5, 1, 1); s.refused(2, 6, 1, 1) }, want(history.Busy, history.Busy)},
	{"the store knows the holder", func(s *script) {
		a := s.lock(1, 2, 1)
		s.inspect(a, 3, 4, "n", "somebody", a.Token)
		s.held(a, 5)
	}, nil},
	{"the store does not report the holder of the second name", func(s *script) {
		a := s.lock(1, 2, 1, "m", "n")
		s.inspect(a, 3, 4, "m", a.Token)
		s.inspect(a, 5, 6, "n")
		s.held(a, 7)
	}, want(history.Known)},
	{"the store does not report a lease that may be lost", func(s *script) {
		a := s.lock(1, 2, 1)
		s.held(a, 3)
		s.inspect(a, 4, 5, "n")
	}, nil},
	{"lost early", func(s *script) { s.unlock(s.lock(1, 2, 1), 3, 4).Err = lostTo("n") }, want(history.Lost)},
	{"lost after its TTL", func(s *script) {
		a := s.lock(1, 2, 1)
		a.TTL = 4 * time.Millisecond
		s.unlock(a, 3, 6).Err = lostTo("n")
	}, nil},
	{"lost by a revoke", func(s *script) {
		a := s.lock(1, 2, 1, "m", "n")
		s.revoke(a, 2, 3, "n", true)
		s.unlock(a, 3, 4).Err = lostTo("n")
	}, nil},
	{"nothing left", func(s *script) { s.add(history.Op{Verb: history.Final, Names: []string{"n"}}, 1, 2) }, nil},
	{"something left", func(s *script) {
		s.add(history.Op{Verb: history.Final, Names: []string{"n"}, Tokens: []string{"t"}}, 1, 2)
	}, want(history.Leftover)},
}

func want(rules ...history.Rule) []history.Rule { return rules }

// queue records when a call got its ticket.
func queue(op *history.Op, when int, ticket uint64) *history.Op {
	op.Ticket, op.Queued = ticket, moment(when)
	return op
}

func TestCheck(t *testing.T) {
	for _, w := range scripts {
		t.Run(w.name, func(t *testing.T) {
			var s script
			w.write(&s)
			violations := history.Check(s.ops)
			var got []history.Rule
			for _, v := range violations {
				got = append(got, v.Rule)
			}
			if !slices.Equal(got, w.want) {
				t.Errorf("found %v, want %q", violations, w.want)
			}
		})
	}
}

// A violation names the contradicting operations.
func TestViolationIsExplained(t *testing.T) {
	var s script
	a, b := s.use(1, 2, 20, 1), s.use(3, 4, 10, 2)
	violations := history.Check(s.ops)
	if len(violations) != 1 || !slices.Equal(violations[0].Ops, []*history.Op{a, b}) {
		t.Fatalf("%v, want one of the two", violations)
	}
	const text = `exclusion on "n": both held at 4
	#1 t1 acquire n [1…2, 1ms…2ms] exclusive ttl=10s fences=[1]
	#4 t4 acquire n [3…4, 3ms…4ms] exclusive ttl=10s fences=[2]`
	if got := violations[0].String(); got != text {
		t.Errorf("explained as\n%s\nwant\n%s", got, text)
	}
}
