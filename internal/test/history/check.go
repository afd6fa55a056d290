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

// A Rule is a rule for all results in a history.
type Rule string

// Rules checked by Check.
const (
	Exclusion Rule = "exclusion" // an exclusive lease excludes all others
	Limit     Rule = "limit"     // held weights do not exceed the limit
	Fences    Rule = "fences"    // each fence is larger than the earlier ones
	FIFO      Rule = "fifo"      // waiters are not overtaken
	Busy      Rule = "busy"      // a busy result is correct
	Known     Rule = "known"     // the store reports each holder on each of its names
	Lost      Rule = "lost"      // an unrevoked lease lasts for its TTL
	Leftover  Rule = "left"      // nothing is left at the end
	Batch     Rule = "batch"     // a cohort overtakes a waiter for at most one batch
	Reserved  Rule = "reserved"  // a name stays unavailable for MinHold
	Place     Rule = "place"     // a waiter keeps its place, whatever happens to it or to the store
	Served    Rule = "served"    // a waiter is served while nobody holds
)

// A Violation is a contradiction, with its operations.
type Violation struct {
	Rule Rule
	Name string
	Text string
	Ops  []*Op
}

// String formats the violation with an operation per line.
func (v Violation) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s on %q: %s", v.Rule, v.Name, v.Text)
	for _, op := range v.Ops {
		fmt.Fprintf(&s, "\n\t%v", op)
	}
	return s.String()
}

// Check returns the contradictions in a history. It uses only certain facts. A lease is held from
// the return of its Acquire until the last successful call to Err, and not after a revoke that may
// have ended it.
func Check(h History) []Violation { return CheckWithin(h, driver.Limits{WaiterTTL: driver.WaiterTTL}) }

// CheckWithin is Check for a store with coarser times than others: driver.LimitsOf returns them.
func CheckWithin(h History, limits driver.Limits) []Violation {
	c := newChecker(h)
	c.limits = limits
	for _, name := range c.names {
		c.exclusion(name)
		c.fences(name)
		c.fifo(name)
		c.batch(name)
		c.busy(name)
	}
	for _, op := range h {
		c.known(op)
		c.lost(op)
		c.left(op)
	}
	return c.violations
}

// A checker is a history, indexed for the rules.
type checker struct {
	history     History
	limits      driver.Limits // of the store
	names       []string
	leases      map[int]*lease      // by the Acquire's ID
	takes       map[string][]*Op    // by name: all, granted or not
	spans       map[string][]span   // by name, in the order of their beginnings
	revocations map[leaseKey]Moment // first revoke that may have ended a lease
	moments     []Moment            // all, in order
	violations  []Violation
}

// A leaseKey is a token on a name.
type leaseKey struct{ name, token string }

// A lease contains the operations on a granted Acquire.
type lease struct {
	acquire   *Op
	changes   []*Op
	heldUntil Moment // last moment at which it was certainly held
	release   *Op    // nil if it was never unlocked
}

func newChecker(h History) *checker {
	c := &checker{
		history: h, leases: make(map[int]*lease), takes: make(map[string][]*Op),
		spans: make(map[string][]span), revocations: make(map[leaseKey]Moment),
	}
	for _, op := range h {
		c.moments = append(c.moments, op.Call, op.Return)
		c.add(op)
	}
	slices.SortFunc(c.moments, func(a, b Moment) int { return cmp.Compare(a.Order, b.Order) })
	for name := range c.takes {
		c.names = append(c.names, name)
	}
	slices.Sort(c.names)
	for _, l := range c.leases {
		for i, name := range l.acquire.Names {
			c.spans[name] = append(c.spans[name], c.spansOf(l, i)...)
		}
	}
	for _, spans := range c.spans {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from.Order, b.from.Order) })
	}
	return c
}

// add indexes an operation.
func (c *checker) add(op *Op) {
	l := c.leases[op.Of]
	switch op.Verb {
	case Acquire:
		for _, name := range op.Names {
			c.takes[name] = append(c.takes[name], op)
		}
		if op.Err == nil {
			c.leases[op.ID] = &lease{acquire: op, heldUntil: op.Return}
		}
	case Probe:
		if op.Err == nil {
			l.heldUntil = op.Call
		}
	case Resize:
		l.changes = append(l.changes, op)
	case Release:
		l.release = op
	case Revoke:
		key := leaseKey{op.Names[0], op.Token}
		if first, ok := c.revocations[key]; op.mayHaveRevoked() && (!ok || op.Call.Before(first)) {
			c.revocations[key] = op.Call
		}
	}
}

// mayHaveRevoked reports whether a Revoke may have ended a lease.
func (o *Op) mayHaveRevoked() bool { return o.Revoked || o.Err != nil }

func (c *checker) report(rule Rule, name, text string, ops ...*Op) {
	c.violations = append(c.violations, Violation{rule, name, text, ops})
}

// A span is a time during which a lease certainly held this weight on a name.
type span struct {
	lease         *lease
	weight, limit int
	fence         uint64
	from, to      Moment
}

func (s span) exclusive() bool { return s.weight == s.limit }

// spansOf returns a lease's spans on its i-th name. There are several if it was upgraded or
// downgraded. During a resize, or if its outcome is unknown, only a reader's weight is certain.
func (c *checker) spansOf(l *lease, i int) (spans []span) {
	end := c.end(l, l.acquire.Names[i])
	s := span{lease: l, weight: l.acquire.Weight, limit: l.acquire.Limit, fence: l.acquire.Fences[i], from: l.acquire.Return}
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
			continue // certainly not resized
		}
		cut(change.Call)
		s.weight, s.limit = weightOf(reader)
		if change.Err == nil {
			cut(change.Return)
			s.weight, s.limit, s.fence = change.Weight, change.Limit, change.Fences[i]
		}
	}
	cut(end)
	return spans
}

// end returns until when a lease certainly held a name.
func (c *checker) end(l *lease, name string) Moment {
	end := l.heldUntil
	if l.acquire.MinHold > 0 && l.release != nil && l.release.Err == nil {
		const rounding = 2 * time.Millisecond
		if reserved := c.lastBefore(l.acquire.Call.At + l.acquire.MinHold - rounding); end.Before(reserved) {
			end = reserved
		}
	}
	if revokedAt, ok := c.revocations[leaseKey{name, l.acquire.Token}]; ok && revokedAt.Before(end) {
		return revokedAt
	}
	return end
}

// lastBefore returns the last moment before a time.
func (c *checker) lastBefore(at time.Duration) Moment {
	i, _ := slices.BinarySearchFunc(c.moments, at, func(m Moment, at time.Duration) int { return cmp.Compare(m.At, at) })
	if i == 0 {
		return Moment{}
	}
	return c.moments[i-1]
}

// exclusion checks the rules Exclusion and Limit at the beginning of each span, against overlapping
// spans.
func (c *checker) exclusion(name string) {
	var inside []span
	for _, s := range c.spans[name] {
		inside = slices.DeleteFunc(inside, func(o span) bool { return !s.from.Before(o.to) })
		sum, limit, holders, shared := s.weight, s.limit, []*Op{s.lease.acquire}, true
		for _, o := range inside {
			if o.exclusive() || s.exclusive() {
				c.report(Exclusion, name, fmt.Sprintf("both held at %d", s.from.Order), o.lease.acquire, s.lease.acquire)
				shared = false
			}
			sum, limit, holders = sum+o.weight, max(limit, o.limit), append(holders, o.lease.acquire)
		}
		if shared && sum > limit {
			c.report(Limit, name, fmt.Sprintf("%d of %d held at %d", sum, limit, s.from.Order), holders...)
		}
		inside = append(inside, s)
	}
}

// A fencePoint is a fence at a point in an order.
type fencePoint struct {
	at        int
	fence     uint64
	exclusive bool
	lease     *Op // the Acquire
	op        *Op
}

// forEachOvertaken calls f for each point whose fence is not larger than an earlier point's fence.
// Unless all is set, it compares only pairs with an exclusive lease.
func forEachOvertaken(earlier, later []fencePoint, all bool, f func(before, after fencePoint)) {
	order := func(a, b fencePoint) int { return cmp.Compare(a.at, b.at) }
	earlier, later = slices.Clone(earlier), slices.Clone(later)
	slices.SortFunc(earlier, order)
	slices.SortFunc(later, order)
	var largest, largestExclusive fencePoint
	for _, after := range later {
		for len(earlier) > 0 && earlier[0].at < after.at {
			m := earlier[0]
			earlier = earlier[1:]
			if m.fence > largest.fence {
				largest = m
			}
			if m.exclusive && m.fence > largestExclusive.fence {
				largestExclusive = m
			}
		}
		before := largestExclusive
		if all || after.exclusive {
			before = largest
		}
		if before.op != nil && before.lease != after.lease && before.fence >= after.fence {
			f(before, after)
		}
	}
}

// fences checks that fences are unique and grow: between calls without overlap, and from lease to
// lease where only one can be held at a time.
func (c *checker) fences(name string) {
	var returns, calls []fencePoint
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
			if fence == last && grant.Limit == driver.Unlimited && !grant.Exclusive() {
				continue // a downgrade may keep the fence
			}
			if fence <= last {
				c.report(Fences, name, fmt.Sprintf("fence %d is zero, or not larger than the lease's previous fence", fence), op, grant)
			}
			if o := first[fence]; o != nil && o != op {
				c.report(Fences, name, fmt.Sprintf("fence %d was issued twice", fence), o, grant)
			}
			first[fence], last = op, fence
			returns = append(returns, fencePoint{grant.Return.Order, fence, grant.Exclusive(), op, grant})
			if !c.mayBeRevokedAtReturn(op) {
				calls = append(calls, fencePoint{grant.Call.Order, fence, grant.Exclusive(), op, grant})
			}
		}
	}
	forEachOvertaken(returns, calls, true, func(a, b fencePoint) {
		c.report(Fences, name, fmt.Sprintf("fence %d was granted before %d was requested", a.fence, b.fence), a.op, b.op)
	})
	var begins, ends []fencePoint
	for _, s := range c.spans[name] {
		take := s.lease.acquire
		begins = append(begins, fencePoint{s.from.Order, s.fence, s.exclusive(), take, take})
		ends = append(ends, fencePoint{s.to.Order, s.fence, s.exclusive(), take, take})
	}
	forEachOvertaken(ends, begins, false, func(a, b fencePoint) {
		c.report(Fences, name, fmt.Sprintf("the lease with fence %d was held before the one with %d", a.fence, b.fence), a.op, b.op)
	})
}

// mayBeRevokedAtReturn reports whether a call on a cohort may have got an already revoked lease.
// Like every holder, the cohort learns about this later. Until then it passes the lease on, with a
// fence from before the revoke.
func (c *checker) mayBeRevokedAtReturn(op *Op) bool {
	revokedAt, ok := c.revocations[leaseKey{op.Names[0], op.Token}]
	return op.Cohort != "" && ok && revokedAt.Before(op.Return)
}

// fifo checks that a smaller ticket is served first, and a call is not served before a waiter that
// queued before the call began. Waiters possibly passed over by the store are no contradiction. The
// fences show the order of service if either lease is exclusive. Two shared leases can have been
// acquired again after their grant, with newer fences.
func (c *checker) fifo(name string) {
	var tickets, keptTickets, keptQueued, calls []fencePoint // kept: waiters with a kept place
	for _, op := range c.takes[name] {
		if op.Err != nil {
			continue
		}
		m := fencePoint{op.Call.Order, op.Fences[slices.Index(op.Names, name)], op.Exclusive(), op, op}
		if op.Cohort == "" {
			calls = append(calls, m) // see batch for the others
		}
		// A queue entry or a hand-off may expire and be replaced unnoticed, but not so
		// soon, unless it was revoked.
		if op.Ticket == 0 || c.revoked(op) || op.Return.At-op.Call.At >= min(driver.WaiterTTL, op.TTL) {
			continue
		}
		byTicket, byTime := m, m
		byTicket.at, byTime.at = int(op.Ticket), op.Queued.Order
		tickets = append(tickets, byTicket)
		if !op.PassedOver {
			keptTickets, keptQueued = append(keptTickets, byTicket), append(keptQueued, byTime)
		}
	}
	forEachOvertaken(keptTickets, tickets, false, func(a, b fencePoint) {
		c.report(FIFO, name, "the larger ticket was served first", a.op, b.op)
	})
	forEachOvertaken(keptQueued, calls, false, func(a, b fencePoint) {
		c.report(FIFO, name, "the first was queued before the second called, but was served after it", a.op, b.op)
	})
}

// batch checks that a cohort's calls overtake another client's waiter at most once per pass. If the
// call that queued for the cohort gave up, a later call takes its place, and also overtakes.
func (c *checker) batch(name string) {
	var cohorts, waiters []*Op
	for _, op := range c.takes[name] {
		switch {
		case op.Err != nil || c.revoked(op):
		case op.Cohort != "":
			cohorts = append(cohorts, op)
		case op.Ticket != 0 && op.Exclusive() && len(op.Names) == 1:
			waiters = append(waiters, op)
		}
	}
	overtakes := func(first, second *Op) bool {
		return first.Queued.Order != 0 && first.Queued.Before(second.Call) && second.Fences[0] < first.Fences[0]
	}
	for _, first := range waiters {
		count := make(map[string]int)
		for _, second := range cohorts {
			if !overtakes(first, second) {
				continue
			}
			count[second.Cohort]++
			most := second.MostPasses
			if most > 0 && !slices.ContainsFunc(cohorts, second.isQueuedBy) {
				most++
			}
			if most > 0 && count[second.Cohort] > most {
				c.report(Batch, name, fmt.Sprintf("the first was overtaken by %d calls of one cohort", count[second.Cohort]), first, second)
			}
		}
	}
}

// isQueuedBy reports whether another call on its cohort queued for this call's lease, and was
// served.
func (o *Op) isQueuedBy(other *Op) bool {
	return other.Cohort == o.Cohort && other.Token == o.Token && other.Label == o.QueuedBy
}

// revoked reports whether an Acquire's lease may have been revoked on any of its names.
func (c *checker) revoked(op *Op) bool {
	return slices.ContainsFunc(op.Names, func(name string) bool {
		_, revoked := c.revocations[leaseKey{name, op.Token}]
		return revoked
	})
}

// known checks that the store reports each holder.
func (c *checker) known(op *Op) {
	if op.Verb != Inspect || op.Err != nil || slices.Contains(op.Tokens, op.Token) {
		return
	}
	l, name := c.leases[op.Of], op.Names[0]
	if op.Return.Before(c.end(l, name)) {
		c.report(Known, name, "the store does not report the holder", l.acquire, op)
	}
}

// lost checks that no lease ends before its TTL.
func (c *checker) lost(op *Op) {
	var lost *dibs.LostError
	if op.Of == 0 || !errors.As(op.Err, &lost) || lost.Reason != dibs.ReasonMissing {
		return
	}
	const rounding = 2 * time.Millisecond
	l := c.leases[op.Of]
	if op.Return.At-l.acquire.Call.At >= min(l.acquire.TTL, driver.WaiterTTL)-rounding {
		return
	}
	if c.revoked(l.acquire) {
		return
	}
	c.report(Lost, lost.Name, "lost before its TTL without a revoke", l.acquire, op)
}

// left checks that nothing is held or queued at the end.
func (c *checker) left(op *Op) {
	if op.Verb == Final && (op.Err != nil || len(op.Tokens) > 0) {
		c.report(Leftover, op.Names[0], "something is left", op)
	}
}
