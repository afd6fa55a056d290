package core

import "time"

// A nodeQueue is a node's part in an acquisition: its messages and its last answer. Messages are
// sent in sequence. A release that overtook an acquire would leave the node locked, and a late
// release could release another owner's lock.
type nodeQueue struct {
	acquisition *acquisition
	node        int
	sending     bool
	pending     []*Message // waiting for the message in flight
	newest      *Message   // the last message enqueued
	undelivered int        // number of messages to be redelivered

	pendingCancel *Message  // a queued message that cancels the acquisition
	lateUntil     time.Time // until then a request without an answer may still arrive
	toRepeat      *Message  // to be repeated after that time
	repeat        alarm

	nodeAnswer
	uncertainUntil time.Time // until then a message may still arrive and remove the vote
	resizeUntil    time.Time // until then a resize without an answer may still arrive
	resizeMode     mode      // mode in that resize; zero if there are several
	mode           mode      // how the node may hold the token
	modeSince      time.Time // when the message for this mode was sent
}

// A nodeAnswer is a node's last answer to a vote request.
type nodeAnswer struct {
	state          state
	err            error     // from the last request; nil if it succeeded
	voteRound      uint64    // in which the last request was sent
	fence          uint64    // if held, the vote's fence; if waiting, the largest fence issued by the node
	storeID        string    // the node's store ID
	notifiedFence  uint64    // from a notification that came while a request was in flight
	notifiedBy     string    // store ID in that notification
	byNotification bool      // the vote came as a notification, so its lease has the hand-off TTL
	requestedAt    time.Time // when the last answered request was sent

	holder    holderID
	remaining time.Duration
	position  int
}

// A holderID identifies a holder on all nodes. A lease and its reservation are different holders.
type holderID struct {
	token    string
	reserved bool
}

type state int

const (
	unknown state = iota
	held
	waiting
)

// A delivery is a message's place in a nodeQueue.
type delivery struct {
	queue      *nodeQueue
	voteRound  uint64    // the acquisition's round; the message expires when a later round starts
	expires    time.Time // it also expires at this time
	sentAt     time.Time
	redelivery bool // the node's redelivery waits for the outcome
}

func (q *nodeQueue) init(c *acquisition, node int) {
	q.acquisition, q.node = c, node
	q.repeat.owner = repeatedMessage{q}
}

// enqueue adds a message behind the node's pending messages. If the node cannot be reached, the
// message is redelivered later, but expires after maxAge.
func (m *Machine) enqueue(q *nodeQueue, maxAge time.Duration, msg *Message, now time.Time) {
	msg.Node, msg.delivery = q.node, delivery{queue: q, voteRound: q.acquisition.voteRound, expires: now.Add(maxAge)}
	q.newest = msg
	for r := range m.renewals {
		r.recordPending(q)
	}
	m.insert(msg, now)
}

// insert appends a message to its queue, and sends it if the queue is idle.
func (m *Machine) insert(msg *Message, now time.Time) {
	q := msg.queue
	q.pending = append(q.pending, msg)
	if !q.sending {
		m.sendNext(q, now)
	}
}

// sendNext sends the next message that is still needed, if any.
func (m *Machine) sendNext(q *nodeQueue, now time.Time) {
	for q.sending = true; len(q.pending) > 0; {
		msg := pop(&q.pending)
		if q.pendingCancel == msg {
			q.pendingCancel = nil
		}
		if !msg.expired(now) && msg.purpose.prepare(m, msg, now) {
			msg.sentAt = now
			m.effects.Send = append(m.effects.Send, msg)
			return
		}
		m.recordRedelivery(msg, true, now)
	}
	q.sending = false
	m.removeIfDone(q.acquisition, now)
}

// delivered records the answer to a message, and sends the next message.
func (m *Machine) delivered(msg *Message, r Reply, now time.Time) {
	switch msg.purpose.answered(m, msg, r, now) {
	case sentAgain:
		return
	case missed:
		m.recordRedelivery(msg, false, now)
		m.redeliverLater(msg, now)
	case arrived:
		m.recordRedelivery(msg, true, now)
	}
	m.sendNext(msg.queue, now)
}

// expired reports whether a message is obsolete.
func (msg *Message) expired(now time.Time) bool {
	return msg.voteRound != msg.queue.acquisition.voteRound || !now.Before(msg.expires)
}

// slack is how long after its Until a request may still be served.
const slack = 100 * time.Millisecond

// recordUnanswered records an unanswered request.
func (q *nodeQueue) recordUnanswered(until time.Time) {
	q.lateUntil = later(q.lateUntil, until.Add(slack))
}

// distrustUntil invalidates votes requested before until.
func (q *nodeQueue) distrustUntil(until time.Time) {
	q.uncertainUntil = later(q.uncertainUntil, until)
}

// recordCancel records the result of a message that ends the acquisition, valid until the given
// time. If unanswered, the message may arrive after the token is in use again.
func (q *nodeQueue) recordCancel(sent, until time.Time, err error) {
	switch {
	case err != nil:
		q.distrustUntil(until.Add(slack))
		if q.mode == (mode{}) {
			q.mode = unknownMode
		}
	case !sent.Before(q.lateUntil):
		q.mode = mode{}
	}
	q.distrustUntil(q.resizeUntil)
}

// isUncertain reports whether a node's vote does not count, because an earlier message
// may have arrived after it and removed it.
func (q *nodeQueue) isUncertain() bool { return q.mayBeRemovedAfter(q.requestedAt) }

// mayBeRemovedAfter reports whether an earlier message may arrive after a request sent at this
// time, and remove the token. If so, the node's confirmation does not count.
func (q *nodeQueue) mayBeRemovedAfter(sent time.Time) bool { return sent.Before(q.uncertainUntil) }

// isIdle reports whether the node answered all messages and no earlier message can still arrive.
func (q *nodeQueue) isIdle(now time.Time) bool {
	return !q.sending && len(q.pending) == 0 && q.undelivered == 0 && !now.Before(q.lateUntil)
}

// recordGrant records a notification about a grant. It counts only if its fence exceeds the fence
// in the last "not granted" reply, the largest that the node had issued. A smaller fence belongs to
// an earlier queue entry, and would count an ended lease.
func (q *nodeQueue) recordGrant(fence uint64, by string) {
	if q.sending {
		q.notifiedFence, q.notifiedBy = fence, by
	}
	if q.state == waiting && fence > q.fence {
		q.state, q.fence, q.storeID, q.byNotification = held, fence, by, true
	}
}
