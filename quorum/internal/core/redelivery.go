package core

import (
	"time"

	"github.com/dibslock/dibs/driver"
)

// Operations that a node did not receive are redelivered when the node is reachable again (hinted
// hand-off). Otherwise a released lock would block other clients on that node until its TTL ends.
// With two such nodes out of five, a further failure would stop the quorum.

// A redelivery keeps a node's undelivered messages. It sends them singly until the node answers,
// then in batches.
type redelivery struct {
	undelivered []*Message
	running     bool
	underWay    int           // messages in the current batch without an outcome
	failed      bool          // a message in the batch was not answered
	pause       time.Duration // before the current batch
	size        int           // size of the next batch
	jitter      time.Duration
	alarm       alarm
}

// redeliverLater keeps a message until the node is reachable.
func (m *Machine) redeliverLater(msg *Message, now time.Time) {
	const first = 10 * time.Millisecond
	const most = 10_000 // the rest end by their TTL
	r := &m.nodes[msg.Node].redelivery
	if len(r.undelivered) == most {
		return
	}
	msg.queue.undelivered++
	r.undelivered = append(r.undelivered, msg)
	if !r.running {
		r.running, r.pause, r.size, r.jitter = true, first, 1, msg.queue.acquisition.jitter()
		m.alarms.set(&r.alarm, now.Add(r.pause+r.jitter))
	}
}

// wake sends the next batch, and drops expired messages. If none is left, the redelivery
// ends.
func (r *redelivery) wake(m *Machine, now time.Time) {
	var due []*Message
	for len(r.undelivered) > 0 && len(due) < r.size {
		msg := pop(&r.undelivered)
		msg.queue.undelivered--
		if msg.expired(now) {
			m.removeIfDone(msg.queue.acquisition, now)
			continue
		}
		due = append(due, msg)
	}
	r.running, r.underWay, r.failed = len(due) > 0, len(due), false
	for _, msg := range due {
		msg.redelivery = true
		m.insert(msg, now)
	}
}

// recordRedelivery records a redelivered message's outcome. The next batch follows when all
// outcomes are known.
func (m *Machine) recordRedelivery(msg *Message, answered bool, now time.Time) {
	if !msg.redelivery {
		return
	}
	msg.redelivery = false
	r := &m.nodes[msg.Node].redelivery
	r.failed = r.failed || !answered
	if r.underWay--; r.underWay > 0 {
		return
	}
	const next, soon, slow, batch = time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 64
	if r.failed {
		r.pause, r.size = min(2*max(r.pause, soon), slow), 1
	} else {
		r.pause, r.size = next, batch
	}
	m.alarms.set(&r.alarm, now.Add(r.pause+r.jitter))
}

// repeatLater repeats a message that ended the acquisition, if an unanswered request may have
// arrived after it or may still arrive. The end must be the node's last message for the
// acquisition.
func (m *Machine) repeatLater(msg *Message, now time.Time) {
	q := msg.queue
	if !msg.sentAt.Before(q.lateUntil) {
		return
	}
	if q.toRepeat == nil {
		q.undelivered++
		m.scheduleRepeat(q, now)
	}
	q.toRepeat = msg
}

func (m *Machine) scheduleRepeat(q *nodeQueue, now time.Time) {
	m.alarms.set(&q.repeat, later(q.lateUntil, now).Add(q.acquisition.jitter()))
}

// A repeatedMessage inserts the message to be repeated when no earlier request can arrive
// after it.
type repeatedMessage struct{ *nodeQueue }

func (r repeatedMessage) wake(m *Machine, now time.Time) {
	q := r.nodeQueue
	if now.Before(q.lateUntil) {
		m.scheduleRepeat(q, now)
		return
	}
	msg := q.toRepeat
	q.undelivered--
	q.toRepeat, msg.expires = nil, later(msg.expires, now.Add(driver.OperationTimeout))
	m.insert(msg, now)
}
