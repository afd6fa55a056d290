package core

import (
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Verb is a message's operation.
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

// A Message is an operation for a node. The machine changes a message only before it is sent.
type Message struct {
	Node    int
	Verb    Verb
	Call    *Call                 // the cause of the message, or nil
	Until   time.Time             // its sender waits no longer for a reply
	Acquire driver.AcquireRequest // for Acquire, Cancel and Resize, with a Vote
	Release driver.ReleaseRequest // with a Vote
	Extend  []driver.ExtendRequest
	Revoke  driver.RevokeRequest

	purpose purpose
	delivery
	renewal *renewal // for Extend
	poll    *poll    // for Revoke
}

// A Reply is the result of a message.
type Reply struct {
	Acquire driver.AcquireReply // for Acquire and Resize
	OK      bool                // for Release and Revoke
	Errs    []error             // for Extend, by request
	Err     error               // for the other verbs
}

// A purpose is the reason to send a message to a node for an acquisition, and decides how to
// continue after the answer.
type purpose interface {
	// prepare writes the request just before the message is sent. It returns false if the message
	// is no longer needed.
	prepare(m *Machine, msg *Message, now time.Time) bool
	// answered records the answer.
	answered(m *Machine, msg *Message, r Reply, now time.Time) outcome
}

// An outcome says whether a message counts as delivered after an answer.
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

// Answer handles the reply to a message, or the error in its place.
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
