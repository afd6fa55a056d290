package core

import (
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A resizing is a call that changes a lease's weight. If a majority refuses to upgrade a reader to
// a writer, the nodes with the upgrade undo it.
type resizing struct {
	call    *Call
	request driver.AcquireRequest // with the vote for this try
	try     int
	poll    *poll                 // for this try
	answers []driver.AcquireReply // by node, for this try
	known   []uint64              // each node's fence for the lease, if a majority resized it
	fence   uint64                // the largest known fence
	pause   alarm                 // before the next try
}

// Resize starts a resize.
func (m *Machine) Resize(call *Call, q driver.AcquireRequest, now time.Time) Effects {
	q.Vote = &driver.Vote{Fence: m.clock.next(now), RecoveryWindow: m.RecoveryWindow}
	r := &resizing{call: call, request: q, known: make([]uint64, m.Nodes)}
	r.pause.owner = r
	m.begin(call, "resize", q.Name, r, q.Until, now)
	if r.upgrades() {
		m.acquisitionFor(q.Name, q.Token, now).upgraded = modeOf(q)
	}
	r.send(m, now)
	return m.flush()
}

// upgrades reports whether a reader is to become a writer.
func (r *resizing) upgrades() bool {
	return r.request.Exclusive() && r.request.Limit == driver.Unlimited
}

// send sends the request to all nodes without the fence.
func (r *resizing) send(m *Machine, now time.Time) {
	r.try++
	p := m.newPoll("resize", r.request.Name, r)
	p.needMajority, p.collecting = true, true
	r.poll, r.answers = p, make([]driver.AcquireReply, m.Nodes)
	c := m.acquisitionFor(r.request.Name, r.request.Token, now)
	for i := range c.queues {
		if r.known[i] >= r.request.Vote.Fence {
			r.answers[i] = driver.AcquireReply{Held: true, Fence: r.known[i]}
			p.record(m, i, yes, nil, now)
			continue
		}
		m.resizeOn(&c.queues[i], r.request, r, now)
	}
	p.collecting = false
	p.decide(m, false, now)
}

// pollEnded implements pollOwner.
func (r *resizing) pollEnded(m *Machine, done bool, err error, now time.Time) {
	// A node that did not yet receive the last release refuses only briefly.
	const tries, pause = 3, 3 * time.Millisecond
	for _, a := range r.answers {
		m.clock.observe(a.Fence)
	}
	if !done {
		r.revertToReader(m, now)
	}
	switch {
	case err != nil:
		r.end(m, driver.AcquireReply{}, err, now)
	case !done && r.try == tries:
		r.end(m, r.refusal(), nil, now)
	case !done:
		m.alarms.set(&r.pause, now.Add(pause))
	case r.countStored() >= m.Majority:
		r.end(m, driver.AcquireReply{Held: true, Fence: r.fence}, nil, now)
	default: // a majority must store the fence
		r.request.Vote = &driver.Vote{Fence: r.fence, RecoveryWindow: m.RecoveryWindow} // a copy: the last vote was sent
		r.send(m, now)
	}
}

// wake begins the next try.
func (r *resizing) wake(m *Machine, now time.Time) { r.send(m, now) }

// countStored returns the number of nodes that store the largest issued fence.
func (r *resizing) countStored() (n int) {
	for i, a := range r.answers {
		r.known[i] = 0
		if a.Held {
			r.known[i] = a.Fence
		}
	}
	r.fence = max(r.fence, slices.Max(r.known))
	for _, known := range r.known {
		if known >= r.fence {
			n++
		}
	}
	return n
}

// refusal returns a node's refusal, preferably with a holder.
func (r *resizing) refusal() (refusal driver.AcquireReply) {
	for _, a := range r.answers {
		if !a.Held && a.Name != "" && (refusal.Name == "" || refusal.Holder == "") {
			refusal = a
		}
	}
	return refusal
}

// revertToReader makes a token a reader again on all nodes that did not refuse the upgrade. A
// silent node keeps other readers out, but a majority refused the upgrade and does not.
func (r *resizing) revertToReader(m *Machine, now time.Time) {
	if !r.upgrades() {
		return
	}
	q := r.request
	q.Weight, q.Until = 1, time.Time{}
	c := m.acquisitionFor(q.Name, q.Token, now)
	for i := range c.queues {
		if refused := r.answers[i].Name != ""; !refused {
			m.resizeOn(&c.queues[i], q, nil, now)
		}
	}
}

// end ends the call. A lease that became exclusive needs this mode on all nodes.
func (r *resizing) end(m *Machine, reply driver.AcquireReply, err error, now time.Time) {
	m.alarms.stop(&r.pause)
	r.poll.decided = true
	r.call.Reply, r.call.Err = reply, err
	m.end(r.call)
	c := m.acquisitionFor(r.request.Name, r.request.Token, now)
	switch {
	case reply.Held && r.upgrades():
		for i := range c.queues {
			m.changeMode(&c.queues[i], r.request, r.fence, now)
		}
	case reply.Held:
		c.Weight, c.Limit, c.upgraded = r.request.Weight, r.request.Limit, mode{}
	case r.upgrades():
		c.upgraded = mode{}
	}
}

// straggled implements role. A resize waits for all nodes.
func (r *resizing) straggled(*Machine, time.Time) {}

// expired implements role.
func (r *resizing) expired(m *Machine, _ *Call, now time.Time) {
	if r.pause.isSet() { // a majority refused
		r.end(m, r.refusal(), nil, now)
		return
	}
	r.poll.decide(m, true, now)
}

// abandoned implements role.
func (r *resizing) abandoned(m *Machine, _ *Call, err error, now time.Time) {
	if !r.pause.isSet() {
		r.revertToReader(m, now)
	}
	r.end(m, driver.AcquireReply{}, err, now)
}

// resizeOn changes a token's weight on a node, after the pending messages there, because an
// overtaken change would undo it. If r is not nil, it receives the answer.
func (m *Machine) resizeOn(q *nodeQueue, request driver.AcquireRequest, r *resizing, now time.Time) {
	msg := &Message{Acquire: request}
	if r == nil {
		msg.purpose = new(nodeResize)
	} else {
		msg.Call, msg.purpose = r.call, &nodeResize{r.poll, r.answers}
	}
	m.enqueue(q, driver.OperationTimeout, msg, now)
}

// A nodeResize changes a lease's weight on a node. It is not repeated: the caller decides. poll and
// answers belong to the try, or are nil.
type nodeResize struct {
	poll    *poll
	answers []driver.AcquireReply
}

func (r *nodeResize) prepare(m *Machine, msg *Message, now time.Time) bool {
	if msg.Acquire.Until.IsZero() {
		msg.Acquire.Until = now.Add(driver.OperationTimeout)
	}
	q := msg.queue
	msg.Verb, msg.Until, q.mode = Resize, msg.Acquire.Until, unknownMode
	if q.mayBeResized(now, modeOf(msg.Acquire)) {
		r.record(m, msg.Node, driver.AcquireReply{}, &driver.UnavailableError{Op: "resize", Name: msg.Acquire.Name, Cause: errResizePending}, now)
		return false
	}
	return true
}

func (r *nodeResize) answered(m *Machine, msg *Message, reply Reply, now time.Time) outcome {
	msg.queue.recordResized(msg, reply, now)
	answer, err := reply.Acquire, reply.Err
	if answer.Held && msg.queue.mayBeRemovedAfter(msg.sentAt) {
		m.clock.observe(answer.Fence)
		answer, err = driver.AcquireReply{}, &driver.UnavailableError{Op: "resize", Name: msg.Acquire.Name, Cause: errUncertainVote}
	}
	r.record(m, msg.Node, answer, err, now)
	return arrived
}

func (r *nodeResize) record(m *Machine, node int, a driver.AcquireReply, err error, now time.Time) {
	if r.poll == nil {
		return
	}
	r.answers[node] = a
	r.poll.record(m, node, toAnswer(a.Held), err, now)
}

// mayBeResized reports whether an unanswered resize to a different mode may still arrive.
func (q *nodeQueue) mayBeResized(now time.Time, to mode) bool {
	return now.Before(q.resizeUntil) && q.resizeMode != to
}

// recordResized records the answer to a resize, or its absence.
func (q *nodeQueue) recordResized(msg *Message, r Reply, now time.Time) {
	to, until := modeOf(msg.Acquire), later(q.resizeUntil, msg.Until.Add(slack))
	switch {
	case r.Err == nil && r.Acquire.Held:
		q.mode, q.modeSince = to, msg.sentAt
	case !unanswered(r.Err):
	case q.mayBeResized(now, to):
		q.resizeMode, q.resizeUntil = mode{}, until // either resize may arrive
	default:
		q.resizeMode, q.resizeUntil = to, until
	}
}
