package core

import (
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A mode is the weight and limit with which a token is held. The zero mode means: not held on this
// node.
//
// A node's mode can differ from the lease's. It may have missed an upgrade, or the token may have
// been a reader's before, with its release still in flight. If the lease is exclusive, such a vote
// would not keep readers out. So the vote does not count in a renewal until the node stores the
// lease's mode.
type mode struct{ weight, limit int }

var unknownMode = mode{-1, -1}

func modeOf(q driver.AcquireRequest) mode { return mode{q.Weight, q.Limit} }

func (w mode) exclusive() bool { return w != (mode{}) && w.weight == w.limit }

// has reports whether a node can hold a token in one mode only. An unanswered resize may arrive
// after the message for this mode.
func (q *nodeQueue) has(m mode) bool {
	return q.mode == m && (q.resizeMode == m || !q.modeSince.Before(q.resizeUntil))
}

// lacks reports whether a node may lack the mode needed by an exclusive lease.
func (q *nodeQueue) lacks(needed mode) bool { return needed.exclusive() && !q.has(needed) }

// neededMode returns the mode that all votes for a granted lease need, if it is exclusive.
func (c *acquisition) neededMode() mode {
	if c.granted && c.upgraded == (mode{}) {
		return modeOf(c.AcquireRequest)
	}
	return c.upgraded
}

// lacksMode reports whether a node may lack the mode needed by the lease.
func (c *acquisition) lacksMode() bool {
	needed := c.neededMode()
	return slices.ContainsFunc(c.queues, func(q nodeQueue) bool { return q.lacks(needed) })
}

// mayHaveOtherMode reports whether a node may hold a token with a different weight, from an earlier
// use. The node would keep that weight, and a reader's vote does not count for a writer.
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

// setMode records the mode in which a token is being acquired. If an unanswered message may leave
// the token on the node in a different mode, both modes are possible.
func (q *nodeQueue) setMode(acquired mode, now time.Time) {
	if q.mode == (mode{}) {
		q.mode, q.modeSince = acquired, now
	} else {
		q.mode = unknownMode
	}
}

// changeMode sends the lease's mode to a node that may lack it, unless another message is in
// flight.
func (m *Machine) changeMode(q *nodeQueue, request driver.AcquireRequest, fence uint64, now time.Time) {
	if !q.lacks(modeOf(request)) || q.sending || len(q.pending) > 0 || q.undelivered > 0 {
		return
	}
	request.Vote = &driver.Vote{Fence: fence, RecoveryWindow: m.RecoveryWindow}
	m.enqueue(q, m.Longest, &Message{purpose: &modeChange{request}}, now)
}

// A modeChange gives a token its lease's mode on a node that may lack it.
type modeChange struct{ request driver.AcquireRequest }

// prepare implements purpose. After a later message, the change would undo it.
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
