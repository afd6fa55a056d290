package core

import (
	"cmp"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// An acquisition is the state of a token on a name while its requests are pending or it is queued:
// mainly the nodes' answers.
type acquisition struct {
	driver.AcquireRequest
	key            acquisitionKey
	ticket         uint64      // position in all nodes' queues: the smallest is served first
	queues         []nodeQueue // by node
	voteRound      uint64      // round of the latest Acquire; votes requested earlier do not count
	active         bool        // the lock is still wanted
	noWait         bool        // the caller does not wait in the queue
	calls          []*Call     // waiting for the votes in this round
	lastCall       *Call       // the cause of messages while no call waits; or nil
	skipStragglers bool        // do not wait for the remaining nodes after a majority
	granted        bool        // in this round, and the client was notified
	fence          uint64      // a majority must store it before the lock is granted; 0: none yet
	relinquished   int         // how often this round relinquished its votes to older requests
	upgraded       mode        // mode of a lease that became exclusive, or may have; zero: none
	lastUsed       time.Time
	unused         alarm // removes the acquisition when its queue entries have expired
	split          alarm // relinquishes this round's votes again
}

// An acquisitionKey identifies an acquisition. The names in a multi-lock share a token.
type acquisitionKey struct{ name, token string }

// unusedTime is how long an acquisition is kept after its last use. Its queue entries have
// expired by then.
const unusedTime = 2 * driver.WaiterTTL

// acquisitionFor returns the acquisition of a token on a name, and creates it if necessary.
func (m *Machine) acquisitionFor(name, token string, now time.Time) *acquisition {
	at := acquisitionKey{name, token}
	c := m.acquisitions[at]
	if c == nil {
		c = &acquisition{key: at, queues: make([]nodeQueue, m.Nodes)}
		c.Name, c.Token = name, token
		for i := range c.queues {
			c.queues[i].init(c, i)
		}
		c.unused.owner, c.split.owner = unusedAcquisition{c}, splitVote{c}
		m.acquisitions[at] = c
		m.alarms.set(&c.unused, now.Add(unusedTime))
	}
	c.lastUsed = now
	return c
}

// An unusedAcquisition removes an acquisition when it is no longer used.
type unusedAcquisition struct{ *acquisition }

func (u unusedAcquisition) wake(m *Machine, now time.Time) {
	c := u.acquisition
	switch end := c.lastUsed.Add(m.usedFor(c)); {
	case end.After(now):
		m.alarms.set(&c.unused, end)
	case c.hasDeliveries() || c.hasLateMessages(now) || len(c.calls) > 0:
		m.alarms.set(&c.unused, now.Add(unusedTime))
	default:
		m.remove(c)
	}
}

// usedFor returns how long an acquisition is kept after its last use.
func (m *Machine) usedFor(c *acquisition) time.Duration {
	if c.lacksMode() {
		return max(unusedTime, m.Longest) // its lease may be renewed until then
	}
	return unusedTime
}

func (c *acquisition) hasDeliveries() bool {
	return slices.ContainsFunc(c.queues, func(q nodeQueue) bool { return q.sending || q.undelivered > 0 })
}

// hasLateMessages reports whether an unanswered message may still arrive at a node. If this state
// were removed, such a message could be the node's last for the token.
func (c *acquisition) hasLateMessages(now time.Time) bool {
	return slices.ContainsFunc(c.queues, func(q nodeQueue) bool {
		return now.Before(q.lateUntil) || now.Before(q.uncertainUntil) || now.Before(q.resizeUntil)
	})
}

// jitter returns a small delay to separate acquisitions that act at the same time.
func (c *acquisition) jitter() time.Duration {
	return time.Duration(1+c.ticket%1000) * time.Microsecond
}

func (m *Machine) remove(c *acquisition) {
	m.deactivate(c)
	m.alarms.stop(&c.unused)
	delete(m.acquisitions, c.key)
	if m.byToken[c.Token] == c {
		delete(m.byToken, c.Token)
	}
}

// deactivate ends all activity that an acquisition started itself.
func (m *Machine) deactivate(c *acquisition) {
	c.active = false
	m.alarms.stop(&c.split)
}

// removeIfDone removes an acquisition when its state is no longer needed. A granted acquisition is
// needed while it may still have an entry in a node's queue.
func (m *Machine) removeIfDone(c *acquisition, now time.Time) {
	if c.active || c.hasDeliveries() || c.hasLateMessages(now) || m.acquisitions[c.key] != c {
		return
	}
	if c.granted && slices.ContainsFunc(c.queues, func(q nodeQueue) bool { return q.state != held }) || c.lacksMode() {
		return // unusedAcquisition removes it
	}
	m.remove(c)
}

// newVote returns the vote to send to a node.
func (m *Machine) newVote(c *acquisition, relinquish bool) *driver.Vote {
	return &driver.Vote{Ticket: c.ticket, Fence: cmp.Or(c.fence, c.voteRound), RecoveryWindow: m.RecoveryWindow, Relinquish: relinquish}
}

// newNodeRequest returns the request to send to a node.
func (c *acquisition) newNodeRequest(now time.Time) driver.AcquireRequest {
	q := c.AcquireRequest
	if len(c.calls) == 0 { // sent without a caller: the client may be dead
		q.TTL, q.Until = q.HandoffTTL(), now.Add(driver.OperationTimeout)
	}
	return q
}

// cause returns the call to which a message belongs: the first call waiting for the votes,
// otherwise the last call. It is nil if there was no call.
func (c *acquisition) cause() *Call {
	if len(c.calls) == 0 {
		return c.lastCall
	}
	return c.calls[0]
}

// A voteRequest requests a node's vote.
type voteRequest struct {
	c           *acquisition
	round       uint64
	relinquish  bool // the node should give its vote to an older waiter, if any
	requestedAt time.Time
}

// requestVote queues a vote request for a node.
func (m *Machine) requestVote(c *acquisition, q *nodeQueue, relinquish bool, now time.Time) {
	q.pendingCancel = nil // a pending cancel must be sent before this request, and a later cancel after it
	m.enqueue(q, driver.WaiterTTL, &Message{Call: c.cause(), purpose: &voteRequest{c: c, round: c.voteRound, relinquish: relinquish}}, now)
}

// prepare writes a vote request. If the node may hold the token with another weight, the
// token is cancelled first.
func (v *voteRequest) prepare(m *Machine, msg *Message, now time.Time) bool {
	c, q := v.c, msg.queue
	known := c.fence != 0 && q.state == held && q.voteRound == v.round && q.fence >= c.fence
	wanted := c.active || c.granted && c.upgraded == (mode{}) && q.mode != modeOf(c.AcquireRequest) // a granted lease needs all nodes in its mode
	if !wanted || known && !v.relinquish {                                                          // another request would raise the fence again and again
		return false
	}
	v.requestedAt = now
	msg.Acquire = c.newNodeRequest(now)
	msg.Acquire.Vote = m.newVote(c, v.relinquish)
	msg.Until, msg.Verb = msg.Acquire.Until, Acquire
	if q.mayHaveOtherMode(modeOf(c.AcquireRequest), now) {
		msg.Verb = Cancel
	}
	if v.relinquish {
		q.state, q.voteRound = unknown, 0 // the node may be relinquishing the vote, whatever a notification says
	}
	return true
}

// answered records a vote.
func (v *voteRequest) answered(m *Machine, msg *Message, r Reply, now time.Time) outcome {
	c, q := v.c, msg.queue
	if msg.Verb == Cancel { // the token had another weight
		q.recordCancel(msg.sentAt, msg.Until, r.Err)
		if r.Err == nil {
			q.setMode(modeOf(msg.Acquire), now)
			msg.Verb = Acquire
			m.effects.Send = append(m.effects.Send, msg)
			return sentAgain
		}
	}
	if unanswered(r.Err) {
		q.recordUnanswered(msg.Until)
	}
	if v.relinquish && r.Err != nil {
		q.distrustUntil(msg.Until.Add(slack))
	}
	q.requestedAt = v.requestedAt
	q.voteRound, q.err, q.byNotification = v.round, r.Err, false
	m.recordStoreID(msg.Node, r.Acquire.Vote.Node)
	switch {
	case r.Err != nil:
		q.state = unknown
	case r.Acquire.Held:
		q.state, q.fence, q.storeID = held, r.Acquire.Fence, r.Acquire.Vote.Node
		m.clock.observe(r.Acquire.Fence)
	default:
		q.state, q.fence, q.storeID = waiting, r.Acquire.Fence, r.Acquire.Vote.Node
		q.holder, q.remaining, q.position = holderID{r.Acquire.Holder, r.Acquire.Reserved}, r.Acquire.Remaining, r.Acquire.Position
		q.recordGrant(q.notifiedFence, q.notifiedBy)
	}
	q.notifiedFence = 0
	m.evaluate(c, now)
	return outcomeOf(r.Err)
}

// Granted handles a node's notification about a grant to a waiter.
func (m *Machine) Granted(node int, e driver.Event, now time.Time) Effects {
	c := m.byToken[e.Token] // a multi-lock uses one token for all names and acquires them in sequence
	if c != nil && e.Ticket == c.ticket {
		m.clock.observe(e.Fence)
		m.recordStoreID(node, e.Vote.Node)
		c.queues[node].recordGrant(e.Fence, e.Vote.Node)
		m.evaluate(c, now)
	}
	return m.flush()
}
