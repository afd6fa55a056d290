package core

import (
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A tally counts a round's votes.
type tally struct {
	votes     int // votes for this acquisition
	confirmed int // votes that answer a request, without notifications
	withFence int // votes from nodes with the fence
	answered  int // nodes that answered
	pending   int // nodes that may still answer
	topRival  int // votes for the strongest rival, as far as reported
}

// countVotes counts this round's votes. A store configured as two nodes has a single vote.
func (m *Machine) countVotes(c *acquisition) (n tally) {
	for i := range c.queues {
		q := &c.queues[i]
		switch {
		case q.voteRound != c.voteRound:
			n.pending++
			continue
		case q.state == unknown, q.isUncertain(), c.hasVoted(q.storeID, i):
			continue
		}
		n.answered++
		if q.state == waiting {
			n.topRival = max(n.topRival, c.votesFor(q.holder))
			continue
		}
		n.votes++
		if !q.byNotification {
			n.confirmed++
		}
		if q.fence >= c.fence {
			n.withFence++
		}
	}
	if c.skipStragglers && n.answered >= m.Majority {
		n.pending = 0
	}
	if c.isNotified() {
		n.topRival = 0
	}
	return n
}

// counts reports whether a node's answer counts in this round.
func (c *acquisition) counts(q *nodeQueue) bool {
	return q.voteRound == c.voteRound && q.state != unknown && !q.isUncertain()
}

// hasVoted reports whether an earlier node with the same store ID voted.
func (c *acquisition) hasVoted(storeID string, node int) bool {
	if storeID == "" {
		return false
	}
	for i := range c.queues[:node] {
		if q := &c.queues[i]; c.counts(q) && q.storeID == storeID {
			return true
		}
	}
	return false
}

// votesFor returns how many nodes have reported this holder.
func (c *acquisition) votesFor(rival holderID) (n int) {
	if rival.token == "" {
		return 0
	}
	for i := range c.queues {
		if q := &c.queues[i]; c.counts(q) && q.state == waiting && q.holder == rival && !c.hasVoted(q.storeID, i) {
			n++
		}
	}
	return n
}

// isNotified reports whether a node notified the acquisition about a hand-off. Then the other
// nodes' replies about the holder are old, and their votes are in flight.
func (c *acquisition) isNotified() bool {
	return slices.ContainsFunc(c.queues, func(q nodeQueue) bool { return q.byNotification && q.state == held })
}

// evaluate acts on the votes.
func (m *Machine) evaluate(c *acquisition, now time.Time) {
	n := m.countVotes(c)
	decidable := n.answered >= m.Majority || n.answered+n.pending < m.Majority
	if c.active {
		inAcquire := len(c.calls) > 0
		switch {
		case n.votes >= m.Majority && !m.ensureFenceStored(c, now):
		case n.votes >= m.Majority && !inAcquire && !c.granted:
			m.grant(c)
		case n.votes >= m.Majority || n.pending > 0 || !c.Queue:
		case c.noWait, !inAcquire && n.votes > 0 && (n.topRival < m.Majority || c.relinquished == 0):
			m.scheduleRelinquish(c, now)
		}
	}
	if decidable {
		m.decide(c, false, now)
	}
}

// grant notifies the client about its grant.
func (m *Machine) grant(c *acquisition) {
	c.granted = true
	m.deactivate(c)
	m.effects.Notify = append(m.effects.Notify, Notification{c.Client, driver.Event{
		Kind: driver.EventGranted, Token: c.Token, Fence: c.fence, Ticket: c.ticket,
	}})
}

// ensureFenceStored makes a majority of the nodes store the fence when an acquisition has a
// majority. It sends the fence to nodes with a smaller fence. The next holder needs a vote from at
// least one of these nodes, so it gets a larger fence. Usually all nodes accepted the proposed
// fence, and nothing is sent.
func (m *Machine) ensureFenceStored(c *acquisition, now time.Time) bool {
	if m.fenceStored(c) {
		return true
	}
	for i := range c.queues {
		if q := &c.queues[i]; q.state == held && q.fence < c.fence && len(q.pending) == 0 {
			m.requestVote(c, q, false, now)
		}
	}
	return false
}

// fenceStored reports whether a majority stores the fence, which is the largest among the counted
// votes.
func (m *Machine) fenceStored(c *acquisition) bool {
	for i := range c.queues {
		if q := &c.queues[i]; q.state == held && q.voteRound == c.voteRound {
			c.fence = max(c.fence, q.fence)
		}
	}
	return m.countVotes(c).withFence >= m.Majority
}

// scheduleRelinquish resolves a split vote, in which no acquisition has a majority. It relinquishes
// this acquisition's votes to older waiters; each node reports whether it has an older waiter. All
// nodes use the same order, so they converge on the oldest.
//
// If a rival reached a majority, the votes are relinquished once in a round, so that the rival gets
// all nodes. With a bare majority, it would lose its lease with the next node.
func (m *Machine) scheduleRelinquish(c *acquisition, now time.Time) {
	const first, most = 5 * time.Millisecond, 500 * time.Millisecond
	if c.split.isSet() {
		return
	}
	c.relinquished++
	if c.relinquished == 1 && !c.isNotified() {
		m.relinquish(c, now)
		return
	}
	wait := min(first<<min(c.relinquished, 10), most)
	wait += time.Duration(c.ticket) % wait // jitter
	m.alarms.set(&c.split, now.Add(wait))
}

// A splitVote relinquishes votes after a pause.
type splitVote struct{ *acquisition }

func (s splitVote) wake(m *Machine, now time.Time) {
	if c := s.acquisition; m.countVotes(c).votes < m.Majority {
		m.relinquish(c, now)
	}
}

func (m *Machine) relinquish(c *acquisition, now time.Time) {
	for i := range c.queues {
		q := &c.queues[i]
		if (q.state == held || c.noWait) && len(q.pending) == 0 { // the client of a try may not listen for notifications
			m.requestVote(c, q, true, now)
		}
	}
}
