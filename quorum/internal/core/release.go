package core

import (
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
)

// Cancel starts a cancel. Nodes that do not answer receive it later.
func (m *Machine) Cancel(call *Call, q driver.AcquireRequest, now time.Time) Effects {
	p := m.beginMajority(call, "cancel", q.Name, q.Until, now)
	c := m.acquisitionFor(q.Name, q.Token, now)
	c.AcquireRequest = q
	m.endLease(c)
	for i := range c.queues {
		m.cancelOn(&c.queues[i], call, p, now)
	}
	return m.flush()
}

// endLease ends an acquisition's lease or wait: it requests no further votes.
func (m *Machine) endLease(c *acquisition) {
	m.deactivate(c)
	c.granted, c.upgraded = false, mode{}
}

// cancelAll cancels an acquisition on all nodes, in the background.
func (m *Machine) cancelAll(c *acquisition, now time.Time) {
	m.endLease(c)
	for i := range c.queues {
		m.cancelOn(&c.queues[i], c.lastCall, nil, now)
	}
}

// cancelOn cancels an acquisition on a node, for a call with its poll, or for no call. It joins a
// pending cancel, so that repeated tries do not fill the queue for a silent node.
func (m *Machine) cancelOn(q *nodeQueue, call *Call, p *poll, now time.Time) {
	if q.pendingCancel != nil {
		q.pendingCancel.purpose.(*cancellation).add(p)
		return
	}
	c := new(cancellation)
	c.add(p)
	q.pendingCancel = &Message{Call: call, purpose: c}
	m.enqueue(q, m.Longest, q.pendingCancel, now)
}

// A cancellation ends an acquisition on a node.
type cancellation struct{ polls []*poll }

func (c *cancellation) add(p *poll) {
	if p != nil {
		c.polls = append(c.polls, p)
	}
}

func (c *cancellation) prepare(m *Machine, msg *Message, now time.Time) bool {
	if msg.Acquire.Vote == nil {
		a := msg.queue.acquisition
		msg.Verb, msg.Acquire = Cancel, a.AcquireRequest
		msg.Acquire.Vote = &driver.Vote{Ticket: a.ticket, Fence: m.clock.next(now), RecoveryWindow: m.RecoveryWindow}
	}
	msg.Until = now.Add(driver.OperationTimeout) // limit for this delivery
	msg.Acquire.Until = msg.Until
	return true
}

func (c *cancellation) answered(m *Machine, msg *Message, r Reply, now time.Time) outcome {
	q := msg.queue
	q.recordCancel(msg.sentAt, msg.Until, r.Err)
	if errors.Is(r.Err, driver.ErrUnavailable) && len(q.pending) == 0 {
		q.pendingCancel = msg
	}
	for _, p := range c.polls {
		p.record(m, msg.Node, yes, r.Err, now)
	}
	return m.ended(msg, r.Err, now)
}

// ended returns the outcome of a message that ends an acquisition. A refusal can also be temporary.
func (m *Machine) ended(msg *Message, err error, now time.Time) outcome {
	if errors.Is(err, driver.ErrUnavailable) {
		return missed
	}
	m.repeatLater(msg, now)
	return arrived
}

// Release starts a release.
func (m *Machine) Release(call *Call, r driver.ReleaseRequest, now time.Time) Effects {
	p := m.beginMajority(call, "release", r.Name, r.Until, now)
	r.TokenEnds = false // a node must not release late: whether its vote counts is known by then
	m.clock.observe(r.Fence)
	c := m.acquisitionFor(r.Name, r.Token, now)
	r.Vote = &driver.Vote{Ticket: c.ticket, Fence: m.clock.next(now), RecoveryWindow: m.RecoveryWindow}
	cancel := c.AcquireRequest
	cancel.Vote = r.Vote
	m.endLease(c)
	for i := range c.queues {
		m.enqueue(&c.queues[i], m.Longest, &Message{Call: call, Release: r, Acquire: cancel, purpose: &release{
			poll:      p,
			wasQueued: c.Client != "", // by this client, not by another process; where it does not hold the lock, it may be queued
			reserved:  now.Add(r.Reserve),
		}}, now)
	}
	return m.flush()
}

// A release ends a lease on a node. It does not remove a queue entry. So a cancel is sent instead
// if the token may be queued on the node, or if an earlier request may arrive later.
type release struct {
	poll      *poll
	wasQueued bool
	reserved  time.Time // the name stays unavailable until then, however late the release is delivered
	released  bool
}

func (r *release) prepare(_ *Machine, msg *Message, now time.Time) bool {
	msg.Until = now.Add(driver.OperationTimeout) // limit for this delivery
	msg.Release.Until, msg.Acquire.Until = msg.Until, msg.Until
	if msg.Release.Reserve > 0 {
		msg.Release.Reserve = max(r.reserved.Sub(now), 0)
	}
	msg.Verb = Release
	if r.wasQueued && (msg.queue.state != held || r.released) {
		msg.Verb = Cancel
	}
	return true
}

func (r *release) answered(m *Machine, msg *Message, reply Reply, now time.Time) outcome {
	msg.queue.recordCancel(msg.sentAt, msg.Until, reply.Err)
	r.released = r.released || reply.Err == nil
	a := toAnswer(reply.OK)
	if msg.Verb == Cancel {
		a = doneUnclear
	}
	r.poll.record(m, msg.Node, a, reply.Err, now)
	return m.ended(msg, reply.Err, now)
}

// Revoke starts a revocation. It is sent once: a node that does not answer keeps the lease until
// its TTL ends.
func (m *Machine) Revoke(call *Call, r driver.RevokeRequest, until, now time.Time) Effects {
	p := m.beginMajority(call, "revoke", r.Name, until, now)
	p.needMajority = true // a few nodes may have an older fence for the lease
	for i := range m.Nodes {
		m.effects.Send = append(m.effects.Send, &Message{Node: i, Verb: Revoke, Call: call, Until: until, Revoke: r, poll: p})
	}
	return m.flush()
}
