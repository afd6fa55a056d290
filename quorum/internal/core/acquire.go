package core

import (
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// Acquire starts an acquire. It sends the request to all nodes together. The call ends when a
// majority gave the same answer, or can no longer do so.
func (m *Machine) Acquire(call *Call, q driver.AcquireRequest, now time.Time) Effects {
	c := m.acquisitionFor(q.Name, q.Token, now)
	m.byToken[q.Token] = c
	if !c.active { // there is no queue entry to keep; a ticket ends with its grant
		c.ticket = m.clock.next(now)
	}
	c.AcquireRequest, c.active, c.noWait, c.skipStragglers, c.upgraded = q, true, !q.Queue, false, mode{}
	m.begin(call, "acquire", q.Name, c, q.Until, now)
	c.calls, c.lastCall = append(c.calls, call), call
	m.startRound(c, false, now)
	m.decide(c, false, now)
	return m.flush()
}

// startRound sends a vote request to all nodes.
func (m *Machine) startRound(c *acquisition, relinquish bool, now time.Time) {
	c.voteRound = m.clock.next(now)
	c.granted, c.fence, c.relinquished = false, 0, 0
	m.alarms.stop(&c.split)
	for i := range c.queues {
		m.requestVote(c, &c.queues[i], relinquish, now)
	}
}

// straggled implements role.
func (c *acquisition) straggled(m *Machine, now time.Time) {
	c.skipStragglers = true
	m.evaluate(c, now)
}

// expired implements role.
func (c *acquisition) expired(m *Machine, call *Call, now time.Time) {
	m.decide(c, true, now)
}

// abandoned implements role.
func (c *acquisition) abandoned(m *Machine, call *Call, err error, now time.Time) {
	c.calls = slices.DeleteFunc(c.calls, func(o *Call) bool { return o == call })
	call.Err = err
	m.end(call)
	if len(c.calls) == 0 {
		m.cancelAll(c, now)
	}
}

// endAcquire ends an acquisition's calls, all with the same result.
func (m *Machine) endAcquire(c *acquisition, reply driver.AcquireReply, err error) {
	for _, call := range c.calls {
		call.Reply, call.Err = reply, err
		m.end(call)
	}
	c.calls = nil
}

// decide ends an acquisition's calls if the votes decide it. expired forces a decision now.
func (m *Machine) decide(c *acquisition, expired bool, now time.Time) {
	if len(c.calls) == 0 {
		return
	}
	if err := m.checkDuplicateNodes(); err != nil {
		m.endAcquire(c, driver.AcquireReply{}, err)
		m.cancelAll(c, now)
		return
	}
	n := m.countVotes(c)
	answered := n.answered >= m.Majority
	agreed := n.votes >= m.Majority && m.fenceStored(c)
	switch {
	case n.confirmed >= m.Majority && agreed:
		c.granted = true
		m.endAcquire(c, driver.AcquireReply{Held: true, Fence: c.fence}, nil)
		m.deactivate(c)
		m.removeIfDone(c, now)
	case expired && !answered, n.answered+n.pending < m.Majority:
		m.failAcquire(c, now)
	case n.votes >= m.Majority && !agreed && !expired: // the fence is on its way
	case agreed && !expired: // some votes come from a hand-off, whose TTL is short
		m.startRound(c, false, now)
	case c.noWait && answered && !expired:
		m.decideTry(c, n, now)
	case expired, answered && n.pending == 0:
		m.endAcquire(c, c.busyReply(m.Majority), nil)
		if c.noWait {
			m.cancelAll(c, now)
		} else {
			m.evaluate(c, now) // from now on nodes are queried without a caller
		}
	}
}

// failAcquire ends the calls when a majority did not answer. The caller should repeat a request
// with an unknown outcome, using the same queue entry.
func (m *Machine) failAcquire(c *acquisition, now time.Time) {
	err := Unavailable("acquire", c.Name, c.nodeErrors())
	m.endAcquire(c, driver.AcquireReply{}, err)
	var u *driver.UnavailableError
	if c.noWait || !errors.As(err, &u) || u.Refused {
		m.cancelAll(c, now)
	}
}

// decideTry decides on a request that does not wait. If several requests arrive together, each may
// get votes from a few nodes. Then this request queues with the others until the oldest gets all
// votes.
func (m *Machine) decideTry(c *acquisition, n tally, now time.Time) {
	const enough = 3 // attempts to relinquish; by then the request with the most votes holds the lock, or was cancelled
	none := n.votes+n.pending < m.Majority
	lost := n.topRival >= m.Majority || none && n.votes == 0
	switch {
	case !c.Queue && lost, c.Queue && lost && n.pending == 0 && c.relinquished > enough:
		m.endAcquire(c, c.busyReply(m.Majority), nil)
		m.cancelAll(c, now)
	case !c.Queue && none:
		c.Queue = true
		m.startRound(c, true, now)
	}
}

// nodeErrors returns an error for each node without an answer in this round, and nil for the
// others.
func (c *acquisition) nodeErrors() []error {
	errs := make([]error, len(c.queues))
	for i := range c.queues {
		switch q := &c.queues[i]; {
		case q.voteRound != c.voteRound:
			errs[i] = ErrNoAnswer
		case q.state == unknown:
			errs[i] = q.err
		case q.isUncertain():
			errs[i] = errUncertainVote
		case c.hasVoted(q.storeID, i):
			errs[i] = errDuplicateNode
		}
	}
	return errs
}

// busyReply returns the reply to a request without a majority.
func (c *acquisition) busyReply(majority int) driver.AcquireReply {
	a := driver.AcquireReply{Name: c.Name}
	most := 0
	var positions []int
	for i := range c.queues {
		q := &c.queues[i]
		if q.state != waiting || q.voteRound != c.voteRound {
			continue
		}
		if n := c.reports(q.holder); n > most {
			most, a.Holder, a.Reserved, a.Remaining = n, q.holder.token, q.holder.reserved, q.remaining
		}
		positions = append(positions, q.position)
	}
	if !c.noWait {
		a.Ticket, a.Position = c.ticket, 1
		if slices.Sort(positions); len(positions) >= majority {
			a.Position = positions[majority-1] // a few nodes may not have received the last release yet
		}
	}
	if a.Holder == "" {
		a.Remaining = driver.WaiterTTL
	}
	return a
}

// reports returns how many nodes named this holder in this round.
func (c *acquisition) reports(h holderID) (n int) {
	for i := range c.queues {
		if q := &c.queues[i]; q.state == waiting && q.voteRound == c.voteRound && q.holder == h {
			n++
		}
	}
	return n
}
