package core

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A renewal is an Extend on all nodes. A lease is extended if a majority of nodes extended it. Then
// each node without the lease is asked to vote for it again.
type renewal struct {
	call     *Call
	requests []driver.ExtendRequest
	notLost  map[queueKey]error // why a node without the lease did not lose it
	errs     [][]error          // by node and request; nil until the node answers
	pending  int                // nodes without an answer
	sentAt   time.Time
}

// A queueKey identifies a nodeQueue, also after its acquisition was removed.
type queueKey struct {
	acquisitionKey
	node int
}

// Extend starts an extend. Another pending message for a lease, such as an unanswered acquire, may
// be served before or after it.
func (m *Machine) Extend(call *Call, requests []driver.ExtendRequest, until, now time.Time) Effects {
	r := &renewal{call: call, requests: slices.Clone(requests), errs: make([][]error, m.Nodes), pending: m.Nodes, sentAt: now}
	for i, h := range requests {
		if c := m.acquisitions[acquisitionKey{h.Name, h.Token}]; c != nil {
			m.prepareRenewal(r, i, c, now)
		}
	}
	m.renewals[r] = struct{}{}
	m.begin(call, "extend", "", r, until, now)
	for i := range m.Nodes {
		m.effects.Send = append(m.effects.Send, &Message{Node: i, Verb: Extend, Call: call, Until: until, Extend: r.requests, renewal: r})
	}
	return m.flush()
}

// prepareRenewal records which nodes may be without a lease although they did not lose it. It sends
// the lease's mode to nodes with a possibly different mode.
func (m *Machine) prepareRenewal(r *renewal, i int, c *acquisition, now time.Time) {
	h, needed := r.requests[i], r.neededMode(c, i)
	c.lastUsed = now
	for n := range c.queues {
		q := &c.queues[n]
		if q.lacks(needed) {
			m.changeMode(q, driver.AcquireRequest{
				Name: h.Name, Token: h.Token, Client: h.Client, TTL: h.TTL, Weight: needed.weight, Limit: needed.limit,
			}, h.Fence, now)
		}
		switch {
		case !q.isIdle(now):
			r.recordPending(q)
		case c.granted && q.state != held:
			r.setNotLost(q, errNoVote)
		}
	}
}

// recordPending records another message pending at a node for a lease.
func (r *renewal) recordPending(q *nodeQueue) { r.setNotLost(q, errUnderWay) }

func (r *renewal) setNotLost(q *nodeQueue, why error) {
	if r.notLost == nil {
		r.notLost = make(map[queueKey]error)
	}
	r.notLost[queueKey{q.acquisition.key, q.node}] = why
}

// answered stores a node's results and repairs missing votes. A node without a lease did not lose
// it in two cases. Another message for the lease was pending there, or the node had not voted for
// the lease and may have voted since. A released lease must not get the vote again.
func (r *renewal) answered(m *Machine, node int, errs []error, now time.Time) {
	errs = slices.Clone(errs)
	for i, h := range r.requests {
		if errors.Is(errs[i], driver.ErrLost) {
			errs[i] = cmp.Or(r.notLost[queueKey{acquisitionKey{h.Name, h.Token}, node}], errs[i])
		}
	}
	r.errs[node] = errs
	if r.pending--; r.pending == 0 {
		delete(m.renewals, r)
	}
	known := true
	for i := range r.requests {
		_, decided := r.outcome(m, i)
		known = known && decided
	}
	if known {
		r.end(m)
	}
	for i := range r.requests {
		if err, _ := r.outcome(m, i); err == nil {
			r.repairMissing(m, i, now)
		}
	}
}

// outcome returns a request's result, if the nodes' answers decide it.
func (r *renewal) outcome(m *Machine, i int) (err error, decided bool) { //nolint:revive // the error is not the call's
	ok, lost, failed := 0, 0, 0
	for node, errs := range r.errs {
		switch {
		case errs == nil:
		case errs[i] == nil && r.doubt(m, i, node) != nil:
			failed++
		case errs[i] == nil:
			ok++
		case errors.Is(errs[i], driver.ErrLost) || errors.Is(errs[i], errRepaired):
			lost++
		default:
			failed++
		}
	}
	switch {
	case ok >= m.Majority:
		return nil, true
	case lost > m.Nodes-m.Majority:
		return driver.ErrLost, true
	}
	return ErrNoAnswer, ok+lost+failed == len(r.errs)
}

// neededMode returns the mode needed by all votes for a lease that is exclusive, or may have become
// exclusive since the renewal began.
func (r *renewal) neededMode(c *acquisition, i int) mode {
	if h := r.requests[i]; h.Weight != 0 && h.Weight == h.Limit {
		return mode{h.Weight, h.Limit}
	}
	return c.upgraded
}

// doubt returns the reason why a node's extension does not count, or nil. The node may lack the
// mode needed by the lease, or an earlier message may still remove the lease there.
func (r *renewal) doubt(m *Machine, i, node int) error {
	c := m.acquisitions[acquisitionKey{r.requests[i].Name, r.requests[i].Token}]
	switch {
	case c == nil:
		return nil
	case c.queues[node].lacks(r.neededMode(c, i)):
		return errOtherMode
	case c.queues[node].mayBeRemovedAfter(r.sentAt):
		return errUncertainVote
	}
	return nil
}

// end ends the call with the answers received.
func (r *renewal) end(m *Machine) {
	if r.call.ended {
		return
	}
	r.call.Errs = make([]error, len(r.requests))
	for i, h := range r.requests {
		err, _ := r.outcome(m, i)
		if err != nil && !errors.Is(err, driver.ErrLost) {
			err = Unavailable("extend", h.Name, r.causes(m, i))
		}
		r.call.Errs[i] = err
	}
	m.end(r.call)
}

// causes returns, for each node, the reason why it did not extend a lease.
func (r *renewal) causes(m *Machine, i int) []error {
	causes := make([]error, len(r.errs))
	for n, errs := range r.errs {
		causes[n] = ErrNoAnswer
		if errs != nil {
			causes[n] = errs[i]
		}
		switch {
		case errors.Is(causes[n], driver.ErrLost):
			causes[n] = errNoLease
		case causes[n] == nil:
			causes[n] = r.doubt(m, i, n)
		}
	}
	return causes
}

// straggled implements role. An undecided renewal waits for all nodes.
func (r *renewal) straggled(*Machine, time.Time) {}

// expired implements role.
func (r *renewal) expired(m *Machine, _ *Call, _ time.Time) { r.end(m) }

// abandoned implements role.
func (r *renewal) abandoned(m *Machine, _ *Call, _ error, _ time.Time) { r.end(m) }

// repairMissing requests the missing votes for a lease with a majority.
func (r *renewal) repairMissing(m *Machine, i int, now time.Time) {
	for n, errs := range r.errs {
		if len(errs) > i && (errors.Is(errs[i], driver.ErrLost) || errors.Is(errs[i], errNoVote)) {
			errs[i] = errRepaired
			r.repair(m, r.requests[i], n, now)
		}
	}
}

// repair requests a node's missing vote for a lease with a majority. A recently restarted node
// refuses. No other message must have been pending since the renewal began, and none must follow.
// Otherwise the node could grant a released lease, or grant a reader's lock to a lease that is now
// a writer's.
func (r *renewal) repair(m *Machine, h driver.ExtendRequest, node int, now time.Time) {
	if errors.Is(r.notLost[queueKey{acquisitionKey{h.Name, h.Token}, node}], errUnderWay) {
		return // the next renewal can repair it
	}
	c := m.acquisitionFor(h.Name, h.Token, now)
	if c.active {
		return
	}
	m.enqueue(&c.queues[node], driver.OperationTimeout, &Message{Call: r.call, purpose: repair{h}}, now)
}

// A repair is a request for a missing vote.
type repair struct{ driver.ExtendRequest }

func (p repair) prepare(m *Machine, msg *Message, now time.Time) bool {
	if msg.queue.acquisition.active || msg.queue.newest != msg {
		return false
	}
	msg.queue.mode = unknownMode // until it is answered: it may arrive late
	vote := &driver.Vote{Fence: p.Fence, RecoveryWindow: m.RecoveryWindow}
	if vote.Fence == 0 {
		vote.Fence = m.clock.next(now)
	}
	msg.Verb, msg.Until = Acquire, now.Add(driver.OperationTimeout)
	msg.Acquire = driver.AcquireRequest{
		Name: p.Name, Token: p.Token, Client: p.Client, TTL: p.TTL, Weight: p.Weight, Limit: p.Limit, Until: msg.Until, Vote: vote,
	}
	return true
}

func (p repair) answered(m *Machine, msg *Message, r Reply, _ time.Time) outcome {
	m.clock.observe(r.Acquire.Fence)
	if unanswered(r.Err) {
		msg.queue.recordUnanswered(msg.Until)
	}
	if r.Acquire.Held {
		msg.queue.state = held
		msg.queue.mode, msg.queue.modeSince = modeOf(msg.Acquire), msg.sentAt
	}
	return outcomeOf(r.Err)
}

// NeedsState reports whether a message repairs an attached lease with an unknown weight. Then the
// runner should call UseState before it sends the message.
func (msg *Message) NeedsState() bool { return msg.Verb == Acquire && msg.Acquire.Weight == 0 }

// UseState copies an attached lease's weight and fence into its repair, from the state on a
// majority of the nodes. It returns false if there is nothing to repair. Only an exclusive lease is
// repaired: the process that acquired it may upgrade a reader in the meantime.
func (msg *Message) UseState(s driver.State) bool {
	i := slices.IndexFunc(s.Holders, func(h driver.Holder) bool {
		return h.Token == msg.Acquire.Token && h.Weight == 0 && !h.Reserved
	})
	if i < 0 {
		return false
	}
	msg.Acquire.Weight, msg.Acquire.Limit = 1, 1
	msg.Acquire.Vote.Fence = cmp.Or(s.Holders[i].Fence, s.Fence, msg.Acquire.Vote.Fence)
	return true
}
