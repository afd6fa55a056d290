package core

import (
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A mode is the weight and limit of a token. The zero mode means that the token is not on
// the node.
//
// A node may have a token in another mode than that of the lease. It missed an upgrade, or
// the token was a reader's before, and its release is still on its way. Where the lease is
// exclusive, such a vote keeps no other reader out. So it does not count in a renewal until
// the node has the mode of the lease.
type mode struct{ weight, limit int }

var unknownMode = mode{-1, -1}

func modeOf(q driver.AcquireRequest) mode { return mode{q.Weight, q.Limit} }

func (w mode) exclusive() bool { return w != (mode{}) && w.weight == w.limit }

// has reports whether a node can hold a token in one mode only. A resize without an answer
// may arrive after the message that gave it this mode.
func (q *nodeQueue) has(m mode) bool {
	return q.mode == m && (q.resizeMode == m || !q.modeSince.Before(q.resizeUntil))
}

// lacks reports whether a node may not have the mode that an exclusive lease needs.
func (q *nodeQueue) lacks(needed mode) bool { return needed.exclusive() && !q.has(needed) }

// neededMode returns the mode that all votes for a granted lease need, if it is exclusive.
func (c *acquisition) neededMode() mode {
	if c.granted && c.upgraded == (mode{}) {
		return modeOf(c.AcquireRequest)
	}
	return c.upgraded
}

// lacksMode reports whether a node may not have the mode that the lease needs.
func (c *acquisition) lacksMode() bool {
	needed := c.neededMode()
	return slices.ContainsFunc(c.queues, func(q nodeQueue) bool { return q.lacks(needed) })
}

// mayHaveOtherMode reports whether a node may hold a token with another weight than
// wanted, because the token was used before. The node would keep that weight, and a
// reader's vote is no vote for a writer.
func (q *nodeQueue) mayHaveOtherMode(wanted mode, now time.Time) bool {
	if q.has(wanted) {
		return false
	}
	q.distrustUntil(q.lateUntil)
	if q.mode == (mode{}) && !now.Before(q.lateUntil) {
		q.mode, q.modeSince = wanted, now
		return false
	}
	return true
}

// setMode records that a token is being acquired in a mode. If it may still be on the node in
// another, because a message without an answer may arrive late, it can have either.
func (q *nodeQueue) setMode(acquired mode, now time.Time) {
	if q.mode == (mode{}) {
		q.mode, q.modeSince = acquired, now
	} else {
		q.mode = unknownMode
	}
}

// changeMode sends the mode of a lease to a node that may not have it, unless another
// message is on its way.
func (m *Machine) changeMode(q *nodeQueue, request driver.AcquireRequest, fence uint64, now time.Time) {
	if !q.lacks(modeOf(request)) || q.sending || len(q.pending) > 0 || q.undelivered > 0 {
		return
	}
	request.Vote = &driver.Vote{Fence: fence, RecoveryWindow: m.RecoveryWindow}
	m.enqueue(q, m.Longest, &Message{purpose: &modeChange{request}}, now)
}

// A modeChange gives a token the mode of its lease on a node that may not have it.
type modeChange struct{ request driver.AcquireRequest }

// prepare implements purpose. A change after a later message would undo that.
func (w *modeChange) prepare(_ *Machine, msg *Message, now time.Time) bool {
	q := msg.queue
	if q.newest != msg || q.mayBeResized(now, modeOf(w.request)) {
		return false
	}
	q.mode = unknownMode
	msg.Verb, msg.Acquire, msg.Until = Resize, w.request, now.Add(driver.OperationTimeout)
	msg.Acquire.Until = msg.Until
	return true
}

func (w *modeChange) answered(m *Machine, msg *Message, r Reply, now time.Time) outcome {
	m.clock.observe(r.Acquire.Fence)
	msg.queue.recordResized(msg, r, now)
	return outcomeOf(r.Err)
}
