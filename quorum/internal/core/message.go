package core

import (
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Verb is the operation of a message.
type Verb int

// The verbs are methods of driver.Store.
const (
	Acquire Verb = iota
	Cancel
	Resize
	Release
	Extend
	Revoke
)

// A Message is one operation of one node. The machine changes a message only while it is
// not sent.
type Message struct {
	Node    int
	Verb    Verb
	Call    *Call                 // that caused it, or nil
	Until   time.Time             // its sender waits no longer for a reply
	Acquire driver.AcquireRequest // of Acquire, Cancel and Resize, with a Vote
	Release driver.ReleaseRequest // with a Vote
	Extend  []driver.ExtendRequest
	Revoke  driver.RevokeRequest

	purpose purpose
	delivery
	renewal *renewal // of Extend
	poll    *poll    // of Revoke
}

// A Reply is the result of a message.
type Reply struct {
	Acquire driver.AcquireReply // of Acquire and Resize
	OK      bool                // of Release and Revoke
	Errs    []error             // of Extend, by request
	Err     error               // of the others
}

// A purpose is why a message is sent to one node for one acquisition, and what follows
// from the answer.
type purpose interface {
	// prepare writes the request when the turn of the message has come. It reports false
	// if the message is not wanted any longer.
	prepare(m *Machine, msg *Message, now time.Time) bool
	// answered records the answer.
	answered(m *Machine, msg *Message, r Reply, now time.Time) outcome
}

// An outcome is what an answer means for the delivery of a message.
type outcome int

const (
	arrived   outcome = iota
	missed            // the node may not have it: it is sent again later
	sentAgain         // it is sent again now
)

// outcomeOf returns missed if the node gave no answer.
func outcomeOf(err error) outcome {
	if unanswered(err) {
		return missed
	}
	return arrived
}

// Answer is the step of a reply to a message, or of the error that came instead.
func (m *Machine) Answer(msg *Message, r Reply, now time.Time) Effects {
	switch msg.Verb {
	case Extend:
		msg.renewal.answered(m, msg.Node, r.Errs, now)
	case Revoke:
		msg.poll.record(m, msg.Node, toAnswer(r.OK), r.Err, now)
	default:
		m.delivered(msg, r, now)
	}
	return m.flush()
}
