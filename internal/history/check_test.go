package history_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/history"
)

// A script is a history written by hand. Its moments are the numbers from 1, each of
// which lasts a millisecond.
type script struct{ ops history.History }

func at(order int) history.Moment {
	return history.Moment{Order: order, At: time.Duration(order) * time.Millisecond}
}

func (s *script) add(op history.Op, call, ret int) *history.Op {
	op.ID, op.Call, op.Return = len(s.ops)+1, at(call), at(ret)
	op.Label = fmt.Sprintf("t%d", op.ID)
	s.ops = append(s.ops, &op)
	return &op
}

// take is a lease on "n", or on names, that weighs so much of a limit.
func (s *script) take(call, ret, weight, limit int, fence uint64, names ...string) *history.Op {
	if len(names) == 0 {
		names = []string{"n"}
	}
	op := s.add(history.Op{Verb: history.Take, Names: names, Weight: weight, Limit: limit, TTL: 10 * time.Second}, call, ret)
	op.Token = "token-" + op.Label
	for range names {
		op.Fences = append(op.Fences, fence)
	}
	return op
}

func (s *script) lock(call, ret int, fence uint64, names ...string) *history.Op {
	return s.take(call, ret, 1, 1, fence, names...)
}

func (s *script) read(call, ret int, fence uint64) *history.Op {
	return s.take(call, ret, 1, driver.Unlimited, fence)
}

// held says that a lease holds at a moment.
func (s *script) held(take *history.Op, when int) {
	s.add(history.Op{Verb: history.Probe, Of: take.ID, Names: take.Names, Token: take.Token}, when, when)
}

func (s *script) free(take *history.Op, call, ret int) *history.Op {
	return s.add(history.Op{Verb: history.Free, Of: take.ID, Names: take.Names, Token: take.Token}, call, ret)
}

// use is a whole lease: it is taken, held until the last moment but one, and freed.
func (s *script) use(call, ret, last int, fence uint64, names ...string) *history.Op {
	op := s.lock(call, ret, fence, names...)
	s.held(op, last-1)
	s.free(op, last-1, last)
	return op
}

func (s *script) change(take *history.Op, call, ret, weight, limit int, fence uint64) *history.Op {
	return s.add(history.Op{
		Verb: history.Change, Of: take.ID, Names: take.Names, Token: take.Token, Weight: weight, Limit: limit, Fences: []uint64{fence},
	}, call, ret)
}

func (s *script) look(take *history.Op, call, ret int, name string, tokens ...string) {
	s.add(history.Op{Verb: history.Look, Of: take.ID, Names: []string{name}, Token: take.Token, Tokens: tokens}, call, ret)
}

func (s *script) breaks(take *history.Op, call, ret int, name string, broke bool) {
	s.add(history.Op{Verb: history.Break, Names: []string{name}, Token: take.Token, Broke: broke}, call, ret)
}

// refused is a try that is told that the name is taken.
func (s *script) refused(call, ret, weight, limit int) *history.Op {
	op := s.add(history.Op{Verb: history.Take, Names: []string{"n"}, Weight: weight, Limit: limit, Try: true, TTL: 10 * time.Second}, call, ret)
	op.Err = &dibs.BusyError{Name: "n"}
	return op
}

func taken(name string) error { return &dibs.LostError{Name: name, Reason: dibs.ReasonTaken} }

const many = driver.Unlimited

var written = []struct {
	name  string
	write func(s *script)
	want  []history.Rule
}{
	{"one after another", func(s *script) { s.use(1, 2, 5, 1); s.use(3, 6, 9, 2) }, nil},
	{"two hold", func(s *script) { s.use(1, 2, 20, 1); s.use(3, 4, 10, 2) }, want(history.Exclusion)},
	{"two held at unknown times", func(s *script) { s.lock(1, 2, 1); s.lock(3, 4, 2) }, nil},
	{"the first may have expired", func(s *script) {
		a := s.lock(1, 2, 1)
		s.held(a, 5)
		s.add(history.Op{Verb: history.Probe, Of: a.ID, Err: dibs.ErrLost}, 20, 20)
		s.use(3, 6, 10, 2)
	}, nil},
	{"the first is broken", func(s *script) {
		a := s.use(1, 2, 20, 1)
		s.breaks(a, 4, 7, "n", true)
		s.use(3, 6, 10, 2)
	}, nil},
	{"the first is not broken after all", func(s *script) {
		a := s.use(1, 2, 20, 1)
		s.breaks(a, 4, 7, "n", false)
		s.use(3, 6, 10, 2)
	}, want(history.Exclusion)},
	{"one of two names is broken", func(s *script) {
		a := s.use(1, 2, 20, 1, "m", "n")
		s.breaks(a, 4, 7, "n", true)
		s.use(5, 6, 10, 2, "n")
		s.use(11, 12, 14, 2, "m")
	}, want(history.Exclusion)},
	{"reader beside writer", func(s *script) {
		r := s.read(1, 2, 1)
		s.held(r, 20)
		s.use(3, 4, 10, 2)
	}, want(history.Exclusion)},
	{"reader beside reader", func(s *script) {
		r := s.read(1, 2, 1)
		s.held(r, 20)
		s.held(s.read(3, 4, 2), 10)
	}, nil},
	{"a writer steps down", func(s *script) {
		w := s.take(1, 2, many, many, 1)
		s.change(w, 5, 7, 1, many, 3)
		s.held(s.read(3, 6, 4), 15)
		s.held(w, 20)
	}, nil},
	{"a writer steps down too late", func(s *script) {
		w := s.take(1, 2, many, many, 1)
		s.change(w, 8, 9, 1, many, 3)
		s.held(s.read(3, 6, 2), 15)
		s.held(w, 20)
	}, want(history.Exclusion)},
	{"a reader steps up beside another", func(s *script) {
		r := s.read(1, 2, 1)
		s.held(s.read(3, 4, 2), 15)
		s.change(r, 5, 6, many, many, 3)
		s.held(r, 20)
	}, want(history.Exclusion)},
	{"a reader does not step up", func(s *script) {
		r := s.read(1, 2, 1)
		s.held(s.read(3, 4, 2), 15)
		s.change(r, 5, 6, many, many, 1).Err = &dibs.BusyError{Name: "n"}
		s.held(r, 20)
	}, nil},
	{"a reader steps up, perhaps", func(s *script) {
		r := s.read(1, 2, 1)
		s.held(s.read(3, 4, 2), 15)
		s.change(r, 5, 6, many, many, 1).Err = dibs.ErrUnavailable
		s.held(r, 20)
	}, nil},
	{"all permits", func(s *script) { s.held(s.take(1, 2, 2, 3, 1), 20); s.held(s.take(3, 4, 1, 3, 2), 20) }, nil},
	{"more than all permits", func(s *script) { s.held(s.take(1, 2, 2, 3, 1), 20); s.held(s.take(3, 4, 2, 3, 2), 20) }, want(history.Limit)},
	{"MinHold outlives the holder", func(s *script) {
		s.use(1, 2, 5, 1).MinHold = 8 * time.Millisecond
		s.use(4, 9, 12, 2)
	}, nil},
	{"MinHold does not", func(s *script) {
		s.use(1, 2, 5, 1).MinHold = 20 * time.Millisecond
		s.use(4, 9, 12, 2)
	}, want(history.Exclusion)},
	{"a fence goes back", func(s *script) { s.use(1, 2, 4, 7); s.use(5, 6, 8, 6) }, want(history.Fences, history.Fences)},
	{"a fence goes back in a hand-off", func(s *script) { s.use(1, 3, 5, 7); s.use(2, 6, 8, 6) }, want(history.Fences)},
	{"readers learn of fences in any order", func(s *script) { s.held(s.read(1, 3, 7), 5); s.held(s.read(2, 6, 6), 8) }, nil},
	{"a fence repeats", func(s *script) { s.read(1, 3, 7); s.read(2, 4, 7) }, want(history.Fences)},
	{"an upgrade without a new fence", func(s *script) {
		r := s.read(1, 2, 7)
		s.change(r, 3, 4, many, many, 7)
		s.held(r, 5)
	}, want(history.Fences)},
	{"served by ticket", func(s *script) { queue(s.use(1, 5, 7, 1), 3, 2); queue(s.use(2, 9, 12, 2), 4, 3) }, nil},
	{"not served by ticket", func(s *script) { queue(s.use(1, 9, 12, 2), 3, 2); queue(s.use(2, 5, 7, 1), 4, 3) }, want(history.FIFO)},
	{"overtaken by who does not queue", func(s *script) { queue(s.use(1, 9, 12, 2), 3, 2); s.use(4, 5, 7, 1) }, want(history.FIFO)},
	{"not overtaken by who called before", func(s *script) { queue(s.use(1, 9, 12, 2), 3, 2); s.use(2, 5, 7, 1) }, nil},
	{"overtaken by who came later, after a break", func(s *script) {
		a := queue(s.use(1, 9, 12, 2), 3, 2)
		s.breaks(a, 3, 4, "n", true)
		s.use(4, 5, 7, 1)
	}, nil},
	{"overtaken after a place may have ended", func(s *script) {
		a := queue(s.use(1, 9, 12, 2), 3, 2)
		a.Call.At -= driver.WaiterTTL
		s.use(4, 5, 7, 1)
	}, nil},
	{"refused while it was held", func(s *script) { s.use(1, 2, 10, 1); s.refused(4, 5, 1, 1) }, nil},
	{"refused while it was perhaps held yet", func(s *script) { s.use(1, 2, 10, 1); s.refused(9, 12, 1, 1) }, nil},
	{"refused after that", func(s *script) { s.use(1, 2, 10, 1); s.refused(11, 12, 1, 1) }, want(history.Busy)},
	{"refused after that, but there was MinHold", func(s *script) {
		s.use(1, 2, 10, 1).MinHold = 5 * time.Millisecond
		s.refused(11, 12, 1, 1)
	}, nil},
	{"refused beside who may hold yet", func(s *script) {
		s.free(s.lock(1, 2, 1), 4, 5).Err = dibs.ErrUnavailable
		s.refused(11, 12, 1, 1)
	}, nil},
	{"refused beside who gave up", func(s *script) {
		s.lock(1, 2, 0).Err = &dibs.BusyError{Name: "n"}
		s.refused(11, 12, 1, 1)
	}, nil},
	{"refused to read beside a reader", func(s *script) { s.held(s.read(1, 2, 1), 20); s.refused(4, 5, 1, many) }, want(history.Busy)},
	{"refused permits that are there", func(s *script) { s.held(s.take(1, 2, 1, 3, 1), 20); s.refused(4, 5, 2, 3) }, want(history.Busy)},
	{"refused permits that are not there", func(s *script) { s.held(s.take(1, 2, 2, 3, 1), 20); s.refused(4, 5, 2, 3) }, nil},
	{"refused beside who was refused", func(s *script) { s.refused(1, 5, 1, 1); s.refused(2, 6, 1, 1) }, want(history.Busy, history.Busy)},
	{"the store knows the holder", func(s *script) {
		a := s.lock(1, 2, 1)
		s.look(a, 3, 4, "n", "somebody", a.Token)
		s.held(a, 5)
	}, nil},
	{"the store does not know the holder of the second name", func(s *script) {
		a := s.lock(1, 2, 1, "m", "n")
		s.look(a, 3, 4, "m", a.Token)
		s.look(a, 5, 6, "n")
		s.held(a, 7)
	}, want(history.Known)},
	{"it need not, of who may have lost it", func(s *script) {
		a := s.lock(1, 2, 1)
		s.held(a, 3)
		s.look(a, 4, 5, "n")
	}, nil},
	{"taken away", func(s *script) { s.free(s.lock(1, 2, 1), 3, 4).Err = taken("n") }, want(history.Lost)},
	{"taken away after its time", func(s *script) {
		a := s.lock(1, 2, 1)
		a.TTL = 4 * time.Millisecond
		s.free(a, 3, 6).Err = taken("n")
	}, nil},
	{"taken away by a break", func(s *script) {
		a := s.lock(1, 2, 1, "m", "n")
		s.breaks(a, 2, 3, "n", true)
		s.free(a, 3, 4).Err = taken("n")
	}, nil},
	{"nothing left", func(s *script) { s.add(history.Op{Verb: history.Final, Names: []string{"n"}}, 1, 2) }, nil},
	{"something left", func(s *script) {
		s.add(history.Op{Verb: history.Final, Names: []string{"n"}, Tokens: []string{"t"}}, 1, 2)
	}, want(history.Left)},
}

func want(rules ...history.Rule) []history.Rule { return rules }

// queue says that a call was told its ticket at a moment.
func queue(op *history.Op, when int, ticket uint64) *history.Op {
	op.Ticket, op.Queued = ticket, at(when)
	return op
}

func TestCheck(t *testing.T) {
	for _, w := range written {
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

// A violation names the operations that contradict each other.
func TestViolationIsExplained(t *testing.T) {
	var s script
	a, b := s.use(1, 2, 20, 1), s.use(3, 4, 10, 2)
	violations := history.Check(s.ops)
	if len(violations) != 1 || !slices.Equal(violations[0].Ops, []*history.Op{a, b}) {
		t.Fatalf("%v, want one of the two", violations)
	}
	const text = `exclusion on "n": both held at 4
	#1 t1 take n [1…2, 1ms…2ms] alone ttl=10s fences=[1]
	#4 t4 take n [3…4, 3ms…4ms] alone ttl=10s fences=[2]`
	if got := violations[0].String(); got != text {
		t.Errorf("explained as\n%s\nwant\n%s", got, text)
	}
}
