package history

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// A stay is the longest time for which a Take may have been in the way of others.
type stay struct {
	take   *Op
	weight int
	alone  bool
	until  Moment // it is gone when both the order and the time are past that
}

// busy checks that who was told that a name is taken can have been told the truth:
// that there was not certainly room for him all the time.
func (c *checker) busy(name string) {
	var stays []stay
	for _, op := range c.takes[name] {
		if s, ok := c.stay(op); ok {
			stays = append(stays, s)
		}
	}
	for _, op := range c.takes[name] {
		if told := refusal(op); told == nil || told.Name != name {
			continue
		}
		sum, together := op.Weight, true
		var others []*Op
		for _, s := range stays {
			if s.take == op || op.Return.Before(s.take.Call) || s.goneBefore(op.Call) {
				continue
			}
			sum, together = sum+s.weight, together && !s.alone && !op.Alone()
			others = append(others, s.take)
		}
		if len(others) == 0 || together && sum <= op.Limit {
			text := fmt.Sprintf("it was told that the name is taken, and there was room all the time (beside %d others)", len(others))
			c.report(Busy, name, text, append([]*Op{op}, others...)...)
		}
	}
}

// refusal returns what a call that never queues was told, if it was told cleanly that
// the name is taken.
func refusal(op *Op) *dibs.BusyError {
	var told *dibs.BusyError
	if !op.Try || !errors.As(op.Err, &told) || told.Cause != nil {
		return nil
	}
	return told
}

func (s stay) goneBefore(m Moment) bool { return s.until.Before(m) && s.until.At <= m.At }

// stay returns how long a Take may have been in the way; not ok if it never was.
func (c *checker) stay(op *Op) (s stay, ok bool) {
	// After a question without an answer, or a loss, something may live on: in the
	// queue, by a hand-off, or by a renewal that was under way.
	const unanswered, underway = 400 * time.Millisecond, 2 * time.Second
	s = stay{take: op, weight: op.Weight, alone: op.Alone(), until: op.Return}
	if refusal(op) != nil && op.Return.At-op.Call.At < unanswered {
		return s, false
	}
	l := c.leases[op.ID]
	switch {
	case l != nil && l.free == nil:
		s.until = c.moments[len(c.moments)-1]
		return s, true
	case l != nil:
		s.until = l.free.Return
		s.alone = s.alone || slices.ContainsFunc(l.changes, func(change *Op) bool { return change.Alone() })
	}
	switch {
	case l == nil || l.free.Err != nil:
		s.until.At += op.TTL + driver.WaiterTTL + underway
	case op.MinHold > 0:
		s.until.At += op.MinHold + underway
	}
	return s, true
}
