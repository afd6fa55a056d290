package history

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dibslock/dibs"
)

// An occupancy is the longest time for which an Acquire may have blocked others.
type occupancy struct {
	acquire   *Op
	weight    int
	exclusive bool
	until     Moment // it has ended when both the order and the time are later
}

// busy checks each "busy" result from a try. It is wrong if there was certainly room for the
// request during the whole call.
func (c *checker) busy(name string) {
	var occupancies []occupancy
	for _, op := range c.takes[name] {
		if s, ok := c.occupancyOf(op); ok {
			occupancies = append(occupancies, s)
		}
	}
	for _, op := range c.takes[name] {
		if busy := refusal(op); busy == nil || busy.Name != name || op.Cohort != "" {
			continue // a try does not overtake its cohort's waiting calls, which the history does not show
		}
		sum, shared := op.Weight, true
		var others []*Op
		for _, s := range occupancies {
			if s.acquire == op || op.Return.Before(s.acquire.Call) || s.endedBefore(op.Call) {
				continue
			}
			sum, shared = sum+s.weight, shared && !s.exclusive && !op.Exclusive()
			others = append(others, s.acquire)
		}
		if len(others) == 0 || shared && sum <= op.Limit {
			text := fmt.Sprintf("busy, although there was room all the time (beside %d others)", len(others))
			c.report(Busy, name, text, append([]*Op{op}, others...)...)
		}
	}
}

// refusal returns the BusyError for a call that cannot queue, if contention was observed and
// nothing else went wrong.
func refusal(op *Op) *dibs.BusyError {
	var busy *dibs.BusyError
	if !op.Try || !errors.As(op.Err, &busy) || busy.Cause != nil {
		return nil
	}
	return busy
}

func (s occupancy) endedBefore(m Moment) bool { return s.until.Before(m) && s.until.At <= m.At }

// occupancyOf returns how long an Acquire may have blocked others; ok is false if it
// never did.
func (c *checker) occupancyOf(op *Op) (s occupancy, ok bool) {
	// After a request without an answer, or a loss, something may remain: a queue entry,
	// a hand-off, or a renewal in flight.
	const unanswered, underway = 400 * time.Millisecond, 2 * time.Second
	s = occupancy{acquire: op, weight: op.Weight, exclusive: op.Exclusive(), until: op.Return}
	// A cohort's request for a refused call may still be granted, for its other calls.
	if refusal(op) != nil && op.Return.At-op.Call.At < unanswered && op.Cohort == "" {
		return s, false
	}
	l := c.leases[op.ID]
	switch {
	case l != nil && l.release == nil:
		s.until = c.moments[len(c.moments)-1]
		return s, true
	case l != nil:
		s.until = l.release.Return
		s.exclusive = s.exclusive || slices.ContainsFunc(l.changes, func(change *Op) bool { return change.Exclusive() })
	}
	switch {
	case l == nil || l.release.Err != nil:
		s.until.At += op.TTL + c.limits.WaiterTTL + c.limits.Late + underway
	case op.MinHold > 0:
		s.until.At += max(op.MinHold, c.limits.MinTTL) + c.limits.Late + underway
	}
	return s, true
}
