package core

import (
	"errors"
	"time"
)

// A poll collects the nodes' answers to an operation that a majority must have done, or not done.
type poll struct {
	op, name       string
	needMajority   bool    // the result is yes only if a majority answers yes
	errs           []error // ErrNoAnswer until the node answers
	counts         [doneUnclear + 1]int
	skipStragglers bool
	collecting     bool // messages are still being sent: do not decide
	decided        bool
	owner          pollOwner
}

// A pollOwner receives a poll's result, once.
type pollOwner interface {
	pollEnded(m *Machine, done bool, err error, now time.Time)
}

func (m *Machine) newPoll(op, name string, owner pollOwner) *poll {
	p := &poll{op: op, name: name, owner: owner, errs: make([]error, m.Nodes)}
	for i := range p.errs {
		p.errs[i] = ErrNoAnswer
	}
	return p
}

// An answer is a node's answer to a poll.
type answer int

const (
	yes         answer = iota
	no                 // there was nothing to do
	doneUnclear        // done, but it is unknown whether there was anything to do
)

func toAnswer(done bool) answer {
	if done {
		return yes
	}
	return no
}

// record stores a node's answer.
func (p *poll) record(m *Machine, node int, a answer, err error, now time.Time) {
	if p.errs[node] == nil {
		return // a repeated delivery
	}
	if p.errs[node] = err; err == nil {
		p.counts[a]++
	}
	p.decide(m, false, now)
}

// decide reports the result to the owner when the answers decide it: yes if a majority says yes, no
// if such a majority is impossible. With neither, a single yes is enough unless needMajority is
// set: a majority answered, and none of these nodes still has to act. expired forces a decision
// now.
func (p *poll) decide(m *Machine, expired bool, now time.Time) {
	if p.decided || p.collecting {
		return
	}
	done, decided, err := p.verdict(m.Majority, expired)
	if decided {
		p.decided = true
		p.owner.pollEnded(m, done, err, now)
	}
}

func (p *poll) verdict(majority int, expired bool) (done, decided bool, err error) {
	missing, failed := 0, 0
	for _, err := range p.errs {
		switch {
		case errors.Is(err, ErrNoAnswer):
			missing++
		case err != nil:
			failed++
		}
	}
	all := len(p.errs)
	answered := all - missing - failed
	switch {
	case p.counts[yes] >= majority:
		return true, true, nil
	case p.counts[no] > all-majority:
		return false, true, nil
	case !p.needMajority && p.counts[yes] > 0 && answered >= majority && (missing == 0 || p.skipStragglers || expired):
		return true, true, nil
	case !p.needMajority && answered == all:
		return false, true, nil
	case expired, failed > all-majority:
		return false, true, Unavailable(p.op, p.name, append([]error(nil), p.errs...))
	}
	return false, false, nil
}

// A majorityCall is a call with a poll's result.
type majorityCall struct {
	call *Call
	poll *poll
}

// beginMajority starts a call with a poll's result.
func (m *Machine) beginMajority(call *Call, op, name string, until, now time.Time) *poll {
	c := &majorityCall{call: call}
	c.poll = m.newPoll(op, name, c)
	m.begin(call, op, name, c, until, now)
	return c.poll
}

// pollEnded implements pollOwner.
func (c *majorityCall) pollEnded(m *Machine, done bool, err error, _ time.Time) {
	c.call.OK, c.call.Err = done, err
	m.end(c.call)
}

// straggled implements role.
func (c *majorityCall) straggled(m *Machine, now time.Time) {
	c.poll.skipStragglers = true
	c.poll.decide(m, false, now)
}

// expired implements role.
func (c *majorityCall) expired(m *Machine, _ *Call, now time.Time) { c.poll.decide(m, true, now) }

// abandoned implements role.
func (c *majorityCall) abandoned(m *Machine, call *Call, err error, _ time.Time) {
	c.poll.decided = true
	call.Err = err
	m.end(call)
}
