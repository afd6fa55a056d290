package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// A Rule is what a history must not contradict.
type Rule string

// The rules that Check knows.
const (
	Exclusion Rule = "exclusion" // who holds alone holds beside nobody
	Limit     Rule = "limit"     // not more is held than there is
	Fences    Rule = "fences"    // each fence is larger than those before it
	FIFO      Rule = "fifo"      // who waits is not overtaken
	Busy      Rule = "busy"      // who is told that a name is taken is told the truth
	Known     Rule = "known"     // the store knows who holds, on each of his names
	Lost      Rule = "lost"      // what nobody broke lasts as long as its TTL
	Left      Rule = "left"      // in the end nothing is left
)

// A Violation is a contradiction, with the operations that contradict each other.
type Violation struct {
	Rule Rule
	Name string
	Text string
	Ops  []*Op
}

// String tells the violation, an operation a line.
func (v Violation) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s on %q: %s", v.Rule, v.Name, v.Text)
	for _, op := range v.Ops {
		fmt.Fprintf(&s, "\n\t%v", op)
	}
	return s.String()
}

// Check returns the contradictions in a history. It goes by what is certain: a lease
// is held from the return of the call that brought it until the last moment at which
// its Err was asked for and was nil, and not after somebody may have broken it.
func Check(h History) []Violation {
	c := newChecker(h)
	for _, name := range c.names {
		c.exclusion(name)
		c.fences(name)
		c.fifo(name)
		c.busy(name)
	}
	for _, op := range h {
		c.known(op)
		c.lost(op)
		c.left(op)
	}
	return c.found
}

// A checker is a history, sorted for the rules.
type checker struct {
	history History
	names   []string
	leases  map[int]*lease    // by the ID of the Take
	takes   map[string][]*Op  // by name: all, granted or not
	spans   map[string][]span // by name: in the order in which they begin
	breaks  map[claim]Moment  // when a holding may have been broken first
	moments []Moment          // all, in order
	found   []Violation
}

// A claim is one token's on one name.
type claim struct{ name, token string }

// A lease is what belongs to one Take that was granted.
type lease struct {
	take    *Op
	changes []*Op
	held    Moment // the last moment at which it certainly was
	free    *Op    // nil if it was never unlocked
}

func newChecker(h History) *checker {
	c := &checker{
		history: h, leases: make(map[int]*lease), takes: make(map[string][]*Op),
		spans: make(map[string][]span), breaks: make(map[claim]Moment),
	}
	for _, op := range h {
		c.moments = append(c.moments, op.Call, op.Return)
		c.file(op)
	}
	slices.SortFunc(c.moments, func(a, b Moment) int { return cmp.Compare(a.Order, b.Order) })
	for name := range c.takes {
		c.names = append(c.names, name)
	}
	slices.Sort(c.names)
	for _, l := range c.leases {
		for i, name := range l.take.Names {
			c.spans[name] = append(c.spans[name], c.spansOf(l, i)...)
		}
	}
	for _, spans := range c.spans {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from.Order, b.from.Order) })
	}
	return c
}

// file puts an operation where it belongs.
func (c *checker) file(op *Op) {
	l := c.leases[op.Of]
	switch op.Verb {
	case Take:
		for _, name := range op.Names {
			c.takes[name] = append(c.takes[name], op)
		}
		if op.Err == nil {
			c.leases[op.ID] = &lease{take: op, held: op.Return}
		}
	case Probe:
		if op.Err == nil {
			l.held = op.Call
		}
	case Change:
		l.changes = append(l.changes, op)
	case Free:
		l.free = op
	case Break:
		key := claim{op.Names[0], strings.TrimSuffix(op.Token, driver.ReservedSuffix)}
		if first, ok := c.breaks[key]; op.may() && (!ok || op.Call.Before(first)) {
			c.breaks[key] = op.Call
		}
	}
}

// may reports whether a Break may have broken something.
func (o *Op) may() bool { return o.Broke || o.Err != nil }

func (c *checker) report(rule Rule, name, text string, ops ...*Op) {
	c.found = append(c.found, Violation{rule, name, text, ops})
}

// A span is a time for which a lease certainly held so much of a name.
type span struct {
	lease         *lease
	weight, limit int
	fence         uint64
	from, to      Moment
}

func (s span) alone() bool { return s.weight == s.limit }

// spansOf returns the spans of a lease on the i-th of its names: one, or more if it
// was up- or downgraded. While that goes on, or if its outcome is unknown, only a
// reader's part is certain.
func (c *checker) spansOf(l *lease, i int) (spans []span) {
	end := c.end(l, l.take.Names[i])
	s := span{lease: l, weight: l.take.Weight, limit: l.take.Limit, fence: l.take.Fences[i], from: l.take.Return}
	cut := func(at Moment) {
		s.to = at
		if end.Before(at) {
			s.to = end
		}
		if s.from.Before(s.to) {
			spans = append(spans, s)
		}
		s.from = at
	}
	for _, change := range l.changes {
		if errors.Is(change.Err, dibs.ErrBusy) {
			continue // cleanly not
		}
		cut(change.Call)
		s.weight, s.limit = share(reader)
		if change.Err == nil {
			cut(change.Return)
			s.weight, s.limit, s.fence = change.Weight, change.Limit, change.Fences[i]
		}
	}
	cut(end)
	return spans
}

// end returns until when a lease certainly held one of its names.
func (c *checker) end(l *lease, name string) Moment {
	end := l.held
	if l.take.MinHold > 0 && l.free != nil && l.free.Err == nil {
		const rounding = 2 * time.Millisecond
		if kept := c.lastBefore(l.take.Call.At + l.take.MinHold - rounding); end.Before(kept) {
			end = kept
		}
	}
	if broken, ok := c.breaks[claim{name, l.take.Token}]; ok && broken.Before(end) {
		return broken
	}
	return end
}

// lastBefore returns the last moment that came before a time.
func (c *checker) lastBefore(at time.Duration) Moment {
	i, _ := slices.BinarySearchFunc(c.moments, at, func(m Moment, at time.Duration) int { return cmp.Compare(m.At, at) })
	if i == 0 {
		return Moment{}
	}
	return c.moments[i-1]
}

// exclusion checks both that who holds alone does, and that not more is held than
// there is: at the beginning of each span, when those that overlap it are inside.
func (c *checker) exclusion(name string) {
	var inside []span
	for _, s := range c.spans[name] {
		inside = slices.DeleteFunc(inside, func(o span) bool { return !s.from.Before(o.to) })
		sum, limit, holders, together := s.weight, s.limit, []*Op{s.lease.take}, true
		for _, o := range inside {
			if o.alone() || s.alone() {
				c.report(Exclusion, name, fmt.Sprintf("both held at %d", s.from.Order), o.lease.take, s.lease.take)
				together = false
			}
			sum, limit, holders = sum+o.weight, max(limit, o.limit), append(holders, o.lease.take)
		}
		if together && sum > limit {
			c.report(Limit, name, fmt.Sprintf("%d of %d held at %d", sum, limit, s.from.Order), holders...)
		}
		inside = append(inside, s)
	}
}

// A mark is a fence at a point of an order.
type mark struct {
	at    int
	fence uint64
	alone bool
	lease *Op // the Take
	op    *Op
}

// overtaken calls f with each of the later marks that has no larger fence than one
// of the earlier marks that comes before it. Unless all is set, only pairs of which
// one holds alone are compared.
func overtaken(earlier, later []mark, all bool, f func(before, after mark)) {
	order := func(a, b mark) int { return cmp.Compare(a.at, b.at) }
	earlier, later = slices.Clone(earlier), slices.Clone(later)
	slices.SortFunc(earlier, order)
	slices.SortFunc(later, order)
	var largest, largestAlone mark
	for _, after := range later {
		for len(earlier) > 0 && earlier[0].at < after.at {
			m := earlier[0]
			earlier = earlier[1:]
			if m.fence > largest.fence {
				largest = m
			}
			if m.alone && m.fence > largestAlone.fence {
				largestAlone = m
			}
		}
		before := largestAlone
		if all || after.alone {
			before = largest
		}
		if before.op != nil && before.lease != after.lease && before.fence >= after.fence {
			f(before, after)
		}
	}
}

// fences checks that fences are unique, and grow: with the calls that do not overlap,
// and from holding to holding where there can be one at a time.
func (c *checker) fences(name string) {
	var returns, calls []mark
	first := make(map[uint64]*Op)
	for _, op := range c.takes[name] {
		l := c.leases[op.ID]
		if l == nil {
			continue
		}
		i := slices.Index(op.Names, name)
		var last uint64
		for _, grant := range append([]*Op{op}, l.changes...) {
			if grant.Err != nil {
				continue
			}
			fence := grant.Fences[i]
			if fence == last && grant.Limit == driver.Unlimited && !grant.Alone() {
				continue // a downgrade need not bring a new one
			}
			if fence <= last {
				c.report(Fences, name, fmt.Sprintf("fence %d is none, or no larger than the lease's own before", fence), op, grant)
			}
			if o := first[fence]; o != nil && o != op {
				c.report(Fences, name, fmt.Sprintf("fence %d was given out twice", fence), o, grant)
			}
			first[fence], last = op, fence
			returns = append(returns, mark{grant.Return.Order, fence, grant.Alone(), op, grant})
			calls = append(calls, mark{grant.Call.Order, fence, grant.Alone(), op, grant})
		}
	}
	overtaken(returns, calls, true, func(a, b mark) {
		c.report(Fences, name, fmt.Sprintf("fence %d was there before %d was asked for", a.fence, b.fence), a.op, b.op)
	})
	var begins, ends []mark
	for _, s := range c.spans[name] {
		take := s.lease.take
		begins = append(begins, mark{s.from.Order, s.fence, s.alone(), take, take})
		ends = append(ends, mark{s.to.Order, s.fence, s.alone(), take, take})
	}
	overtaken(ends, begins, false, func(a, b mark) {
		c.report(Fences, name, fmt.Sprintf("who held with fence %d was there before who holds with %d", a.fence, b.fence), a.op, b.op)
	})
}

// fifo checks that who has the smaller ticket is served first, and that nobody who
// came when he queued already is served before him. Who was served first, the fences
// tell, if one of the two holds alone: two that hold together may have asked again
// after they were served, and learnt of newer fences.
func (c *checker) fifo(name string) {
	var tickets, queued, calls []mark
	for _, op := range c.takes[name] {
		if op.Err != nil {
			continue
		}
		m := mark{op.Call.Order, op.Fences[slices.Index(op.Names, name)], op.Alone(), op, op}
		calls = append(calls, m)
		// A place, and what a hand-off grants, may end and be taken anew unseen: but
		// not so soon, unless somebody broke it.
		if op.Ticket == 0 || c.broken(op) || op.Return.At-op.Call.At >= min(driver.WaiterTTL, op.TTL) {
			continue
		}
		m.at = op.Queued.Order
		queued = append(queued, m)
		m.at = int(op.Ticket)
		tickets = append(tickets, m)
	}
	overtaken(tickets, tickets, false, func(a, b mark) {
		c.report(FIFO, name, "the larger ticket was served first", a.op, b.op)
	})
	overtaken(queued, calls, false, func(a, b mark) {
		c.report(FIFO, name, "the first queued already when the second called, and was served after it", a.op, b.op)
	})
}

// broken reports whether somebody may have broken what a Take got, on any of its names.
func (c *checker) broken(op *Op) bool {
	return slices.ContainsFunc(op.Names, func(name string) bool {
		_, broken := c.breaks[claim{name, op.Token}]
		return broken
	})
}

// known checks that a holder who looks at the store finds himself there.
func (c *checker) known(op *Op) {
	if op.Verb != Look || op.Err != nil || slices.Contains(op.Tokens, op.Token) {
		return
	}
	l, name := c.leases[op.Of], op.Names[0]
	if op.Return.Before(c.end(l, name)) {
		c.report(Known, name, "it holds, and the store does not know it", l.take, op)
	}
}

// lost checks that the store takes nothing away before its time.
func (c *checker) lost(op *Op) {
	var lost *dibs.LostError
	if op.Of == 0 || !errors.As(op.Err, &lost) || lost.Reason != dibs.ReasonTaken {
		return
	}
	const rounding = 2 * time.Millisecond
	l := c.leases[op.Of]
	if op.Return.At-l.take.Call.At >= min(l.take.TTL, driver.WaiterTTL)-rounding {
		return
	}
	if c.broken(l.take) {
		return
	}
	c.report(Lost, lost.Name, "it was taken away before its time, and nobody broke it", l.take, op)
}

// left checks that nobody holds or waits in the end.
func (c *checker) left(op *Op) {
	if op.Verb == Final && (op.Err != nil || len(op.Tokens) > 0) {
		c.report(Left, op.Names[0], "something is left", op)
	}
}
