package core

import "time"

// A nodeQueue is one node's part of an acquisition: its messages and the node's last
// answer. Messages are sent one after another. A release that overtook an acquire would
// leave the node locked, and a late release could release the lock of another owner.
type nodeQueue struct {
	acquisition *acquisition
	node        int
	sending     bool
	pending     []*Message // waiting for the one that is being sent
	newest      *Message   // the last one enqueued
	undelivered int        // number of messages to be redelivered

	pendingCancel *Message  // a queued message that cancels the acquisition
	lateUntil     time.Time // until then a request without an answer may still arrive
	toRepeat      *Message  // to be repeated after that
	repeat        alarm

	nodeAnswer
	uncertainUntil time.Time // until then a message may still arrive and remove the vote
	resizeUntil    time.Time // until then a resize without an answer may still arrive
	resizeMode     mode      // mode of that resize; zero if there are several
	mode           mode      // how the node may hold the token
	modeSince      time.Time // when the message was sent that gave it this mode
}

// A nodeAnswer is a node's last answer to a vote request.
type nodeAnswer struct {
	state          state
	err            error     // of the last request, nil if it succeeded
	voteRound      uint64    // in which the last request was sent
	fence          uint64    // of the vote if held; if waiting, the largest that the node had issued
	storeID        string    // store ID of the node
	notifiedFence  uint64    // of a notification that came while a request was being sent
	notifiedBy     string    // store ID in that notification
	byNotification bool      // the vote came as a notification, so its TTL is that of a hand-off
	requestedAt    time.Time // when the request of the last answer was sent

	holder    holderID
	remaining time.Duration
	position  int
}

// A holderID identifies a holder on all nodes. A lease and what it has reserved are
// different holders.
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

// A delivery is the place of a message in a nodeQueue.
type delivery struct {
	queue      *nodeQueue
	voteRound  uint64    // of the acquisition; the message expires when a later round starts
	expires    time.Time // it also expires at this time
	sentAt     time.Time
	redelivery bool // its outcome is awaited by the redelivery of the node
}

func (q *nodeQueue) init(c *acquisition, node int) {
	q.acquisition, q.node = c, node
	q.repeat.owner = repeatedMessage{q}
}

// enqueue adds a message behind those that are pending for the node. If the node cannot
// be reached, it is redelivered later, but expires after maxAge.
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

// sendNext sends the next message that is still wanted, if there is one.
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

// delivered records the answer to a message, and sends the next one.
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

// recordUnanswered records that a request got no answer.
func (q *nodeQueue) recordUnanswered(until time.Time) {
	q.lateUntil = later(q.lateUntil, until.Add(slack))
}

// distrustUntil invalidates votes that were requested before until.
func (q *nodeQueue) distrustUntil(until time.Time) {
	q.uncertainUntil = later(q.uncertainUntil, until)
}

// recordCancel records the result of a message that ends the acquisition and is valid
// until then. A message without an answer may arrive when the token is in use again.
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

// mayBeRemovedAfter reports whether an earlier message may arrive at the node after a request
// that was sent at this time, and remove the token. So what the node confirmed does not count.
func (q *nodeQueue) mayBeRemovedAfter(sent time.Time) bool { return sent.Before(q.uncertainUntil) }

// isIdle reports whether the node has answered everything and no earlier message can
// still arrive.
func (q *nodeQueue) isIdle(now time.Time) bool {
	return !q.sending && len(q.pending) == 0 && q.undelivered == 0 && !now.Before(q.lateUntil)
}

// recordGrant records a notification of a grant. It counts only if its fence is larger
// than the one in the last "not granted" reply, which is the largest that the node had
// issued. A smaller fence belongs to an earlier queue entry, and counting it would count
// a lease that has ended.
func (q *nodeQueue) recordGrant(fence uint64, by string) {
	if q.sending {
		q.notifiedFence, q.notifiedBy = fence, by
	}
	if q.state == waiting && fence > q.fence {
		q.state, q.fence, q.storeID, q.byNotification = held, fence, by, true
	}
}
