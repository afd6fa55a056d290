package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// stragglerTimeout is how long an operation waits for the remaining nodes once a majority
// has answered.
const stragglerTimeout = 50 * time.Millisecond

// Acquire implements driver.Store. It sends the request to all nodes at once, and returns
// when a majority has given the same answer or no longer can.
func (s *Store) Acquire(ctx context.Context, q driver.AcquireRequest) (driver.AcquireReply, error) {
	if err := s.checkRequest(q); err != nil {
		return driver.AcquireReply{}, err
	}
	if q.Until.IsZero() {
		q.Until = time.Now().Add(operationTimeout)
	}
	if err := firstErr(contextEnded(ctx, "acquire", q.Name), checkUntil("acquire", q.Name, q.Until)); err != nil {
		return driver.AcquireReply{}, err
	}
	s.mu.Lock()
	c := s.beginAcquire(q)
	s.mu.Unlock()
	stragglers, end := time.NewTimer(stragglerTimeout), time.NewTimer(time.Until(q.Until))
	defer stragglers.Stop()
	defer end.Stop()
	for expired := false; ; {
		if answer, done, err := s.decide(c, expired); done {
			return answer, err
		}
		select {
		case <-c.changed:
		case <-stragglers.C:
			s.mu.Lock()
			c.skipStragglers = true
			notify := s.evaluate(c)
			s.mu.Unlock()
			notify()
		case <-end.C:
			expired = true
		case <-ctx.Done():
			if expired = !time.Now().Before(q.Until); expired {
				continue // both deadlines are the same
			}
			s.mu.Lock()
			c.inAcquire = false
			s.cancelAll(c)
			s.mu.Unlock()
			return driver.AcquireReply{}, contextEnded(ctx, "acquire", q.Name)
		}
	}
}

var (
	errExpired       = errors.New("the request expired before it was served")
	errNoAnswer      = errors.New("no answer yet")
	errDuplicateNode = errors.New("another node has the same store ID: one server is configured twice")
	errUncertainVote = errors.New("its vote is not counted: an earlier release got no answer and may still arrive")
)

func (s *Store) checkRequest(q driver.AcquireRequest) error {
	switch {
	case !q.Exclusive() && q.Limit != driver.Unlimited && len(s.nodes) > 1:
		return fmt.Errorf("%w: acquire %q: a quorum does not support semaphore permits, because two majorities may each see room for the last one", driver.ErrInvalid, q.Name)
	case len(q.With) > 0:
		return fmt.Errorf("%w: acquire %q and others: a quorum acquires one name at a time", driver.ErrInvalid, q.Name)
	case s.recoveryWindow > 0 && q.TTL > s.recoveryWindow:
		return fmt.Errorf("%w: acquire %q: TTL %v exceeds the longest TTL %v of this quorum; set Config.Longest to the same larger value in all clients", driver.ErrInvalid, q.Name, q.TTL, s.recoveryWindow)
	}
	return driver.CheckAcquire(q)
}

func contextEnded(ctx context.Context, op, name string) error {
	if ctx.Err() == nil {
		return nil
	}
	return &driver.UnavailableError{Op: op, Name: name, Cause: context.Cause(ctx)}
}

// checkUntil returns an error if the request has expired.
func checkUntil(op, name string, until time.Time) error {
	if time.Now().Before(until) {
		return nil
	}
	return &driver.UnavailableError{Op: op, Name: name, Cause: errExpired}
}

// beginAcquire starts an Acquire for a token. The caller holds s.mu.
func (s *Store) beginAcquire(q driver.AcquireRequest) *acquisition {
	c := s.acquisitionFor(q.Name, q.Token)
	s.byToken[q.Token] = c
	if !c.active || c.granted { // it has no queue entry to keep
		c.ticket = s.clock.next()
	}
	c.AcquireRequest, c.active, c.noWait, c.skipStragglers = q, true, !q.Queue, false
	s.startRound(c, false)
	return c
}

// startRound sends a vote request to all nodes. The caller holds s.mu.
func (s *Store) startRound(c *acquisition, relinquish bool) {
	c.voteRound = s.clock.next()
	c.inAcquire, c.granted, c.fence, c.relinquished, c.relinquishing = true, false, 0, 0, false
	for _, nq := range c.queues {
		s.sendVoteRequest(c, nq, relinquish)
	}
}

// decide returns the reply of Acquire if the votes decide it. expired forces a decision
// now.
func (s *Store) decide(c *acquisition, expired bool) (answer driver.AcquireReply, done bool, err error) {
	notify := func() {}
	defer func() { notify() }()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkDuplicateNodes(); err != nil {
		c.inAcquire = false
		s.cancelAll(c)
		return driver.AcquireReply{}, true, err
	}
	n := s.countVotes(c)
	answered := n.answered >= s.majority
	agreed := n.votes >= s.majority && s.fenceStored(c)
	switch {
	case n.confirmed >= s.majority && agreed:
		c.inAcquire, c.granted = false, true
		c.deactivate()
		s.removeIfDone(c)
		return driver.AcquireReply{Held: true, Fence: c.fence}, true, nil
	case expired && !answered, n.answered+n.pending < s.majority:
		c.inAcquire = false
		err := s.unavailable("acquire", c.Name, c.nodeErrors())
		var u *driver.UnavailableError
		if c.noWait || errors.As(err, &u) && u.Refused || !errors.As(err, &u) {
			s.cancelAll(c)
		}
		return driver.AcquireReply{}, true, err
	case n.votes >= s.majority && !agreed && !expired:
	case agreed && !expired: // some votes come from a hand-off, whose TTL is short
		s.startRound(c, false)
	case c.noWait && answered && !expired:
		return s.decideTry(c, n)
	case expired, answered && n.pending == 0:
		c.inAcquire = false
		answer = s.busyReply(c)
		if c.noWait {
			s.cancelAll(c)
		} else {
			notify = s.evaluate(c) // from now on nodes are queried without a caller
		}
		return answer, true, nil
	}
	return answer, false, nil
}

// decideTry decides on a request that does not wait. If several requests arrive at once,
// each may have the votes of a few nodes. Then this request queues with the others until
// the oldest has all votes. The caller holds s.mu.
func (s *Store) decideTry(c *acquisition, n tally) (answer driver.AcquireReply, done bool, err error) {
	const enough = 3 // attempts to relinquish; by then the request with the most votes holds the lock, or was cancelled
	none := n.votes+n.pending < s.majority
	lost := n.topRival >= s.majority || none && n.votes == 0
	switch {
	case !c.Queue && lost, c.Queue && lost && n.pending == 0 && c.relinquished > enough:
		c.inAcquire = false
		answer = s.busyReply(c)
		s.cancelAll(c)
		return answer, true, nil
	case !c.Queue && none:
		c.Queue = true
		s.startRound(c, true)
	}
	return answer, false, nil
}

// nodeErrors returns why each node has not answered in this round, or nil for a node that
// has.
func (c *acquisition) nodeErrors() []error {
	errs := make([]error, len(c.queues))
	seen := make(map[string]bool)
	for i, nq := range c.queues {
		switch {
		case nq.voteRound != c.voteRound:
			errs[i] = errNoAnswer
		case nq.state == unknown:
			errs[i] = nq.err
		case nq.isUncertain():
			errs[i] = errUncertainVote
		case nq.storeID != "" && seen[nq.storeID]:
			errs[i] = errDuplicateNode
		default:
			seen[nq.storeID] = true
		}
	}
	return errs
}

// busyReply is the reply to a request without a majority of votes. The caller holds s.mu.
func (s *Store) busyReply(c *acquisition) driver.AcquireReply {
	a := driver.AcquireReply{Name: c.Name}
	votes := make(map[holderID]int)
	var most holderID
	var positions []int
	for _, nq := range c.queues {
		if nq.state != waiting || nq.voteRound != c.voteRound {
			continue
		}
		votes[nq.holder]++
		if most.token == "" || votes[nq.holder] > votes[most] {
			most, a.Remaining = nq.holder, nq.remaining
		}
		positions = append(positions, nq.position)
	}
	a.Holder, a.Reserved = most.token, most.reserved
	if !c.noWait {
		a.Ticket, a.Round, a.Position = c.ticket, c.voteRound, 1
		if slices.Sort(positions); len(positions) >= s.majority {
			a.Position = positions[s.majority-1] // a few nodes may not have received the last release yet
		}
	}
	if a.Holder == "" {
		a.Remaining = driver.WaiterTTL
	}
	return a
}

func sortedNames(names []string) []string { return slices.Sorted(slices.Values(names)) }

// Cancel implements driver.Store. Nodes that do not answer get the cancel later, in the
// background.
func (s *Store) Cancel(ctx context.Context, q driver.AcquireRequest) error {
	if q.Until.IsZero() {
		q.Until = deadlineOf(ctx)
	}
	if err := firstErr(contextEnded(ctx, "cancel", q.Name), checkUntil("cancel", q.Name, q.Until)); err != nil {
		return err
	}
	poll := s.newPoll()
	s.mu.Lock()
	c := s.acquisitionFor(q.Name, q.Token)
	c.AcquireRequest = q
	c.deactivate()
	for i, nq := range c.queues {
		s.cancelOn(c, nq, func(err error) { poll.record(i, yes, err) })
	}
	s.mu.Unlock()
	_, err := poll.result(ctx, "cancel", q.Name, q.Until)
	return err
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	if r.Until.IsZero() {
		r.Until = time.Now().Add(operationTimeout)
	}
	if err := firstErr(contextEnded(ctx, "release", r.Name), checkUntil("release", r.Name, r.Until)); err != nil {
		return false, err
	}
	r.TokenEnds = false // a node must not release late: whether its vote counts is known by then
	s.clock.observe(r.Fence)
	vote := driver.Vote{Fence: s.clock.next(), RecoveryWindow: s.recoveryWindow}
	poll := s.newPoll()
	s.mu.Lock()
	c := s.acquisitionFor(r.Name, r.Token)
	wasQueued := c.Client != "" // by this client, not by another process; where it does not hold the lock, it may be queued
	c.deactivate()
	c.granted = false
	for i, nq := range c.queues {
		s.enqueue(nq, s.longest, s.newRelease(c, nq, r, vote, wasQueued, func(a nodeAnswer, err error) { poll.record(i, a, err) }))
	}
	s.mu.Unlock()
	return poll.result(ctx, "release", r.Name, r.Until)
}

// newRelease returns the delivery of a release to one node. A release does not remove a
// queue entry. So it sends a cancel instead if the token may be queued on the node, or if
// the delivery is repeated because an earlier request may arrive after it. The caller
// holds s.mu.
func (s *Store) newRelease(c *acquisition, nq *nodeQueue, r driver.ReleaseRequest, vote driver.Vote, wasQueued bool, onAnswer func(nodeAnswer, error)) *delivery {
	reservedUntil := time.Now().Add(r.Reserve)
	var freed, released, cancels bool
	q := c.AcquireRequest
	vote.Ticket = c.ticket
	begin := func() bool {
		cancels = wasQueued && (nq.state != held || released)
		r.Until = time.Now().Add(operationTimeout) // of this delivery
		q.Until = r.Until
		return true
	}
	send := func() (err error) {
		ctx, cancel := nodeContext(r.Until)
		defer cancel()
		if cancels {
			return nq.node.CancelVote(ctx, q, vote)
		}
		r := r
		if r.Reserve > 0 { // reserved until then, however late the release is delivered
			r.Reserve = max(time.Until(reservedUntil), 0)
		}
		freed, err = nq.node.ReleaseVote(ctx, r, vote)
		return err
	}
	d := &delivery{begin: begin, send: send, endsAcquisition: true}
	d.end = func(err error) (notify func()) {
		nq.recordCancel(d.sentAt, r.Until, err)
		released = released || err == nil
		answer := no
		switch {
		case cancels:
			answer = doneUnclear
		case freed:
			answer = yes
		}
		return func() { onAnswer(answer, err) }
	}
	return d
}

// Revoke implements driver.Store.
func (s *Store) Revoke(ctx context.Context, name string, fence uint64, reason string) (bool, error) {
	if err := firstErr(driver.CheckRevoke(name, fence, reason), contextEnded(ctx, "revoke", name)); err != nil {
		return false, err
	}
	poll := s.newPoll()
	poll.needMajority = true // a few nodes may have an older fence for the lease
	until := deadlineOf(ctx)
	for i, n := range s.nodes {
		go func() {
			ctx, cancel := nodeContext(until)
			defer cancel()
			revoked, err := n.Revoke(ctx, name, fence, reason)
			poll.record(i, toAnswer(revoked), err)
		}()
	}
	return poll.result(ctx, "revoke", name, until)
}
