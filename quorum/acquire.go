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
const straggle = 50 * time.Millisecond

// Acquire implements driver.Store. It sends the request to all nodes at once, and returns
// when a majority has given the same answer or no longer can.
func (s *Store) Acquire(ctx context.Context, q driver.AcquireRequest) (driver.AcquireReply, error) {
	if err := s.check(q); err != nil {
		return driver.AcquireReply{}, err
	}
	if q.Until.IsZero() {
		q.Until = time.Now().Add(operation)
	}
	if err := firstErr(gone(ctx, "acquire", q.Name), late("acquire", q.Name, q.Until)); err != nil {
		return driver.AcquireReply{}, err
	}
	s.mu.Lock()
	c := s.begin(q)
	s.mu.Unlock()
	patience, end := time.NewTimer(straggle), time.NewTimer(time.Until(q.Until))
	defer patience.Stop()
	defer end.Stop()
	for over := false; ; {
		if answer, done, err := s.decide(c, over); done {
			return answer, err
		}
		select {
		case <-c.changed:
		case <-patience.C:
			s.mu.Lock()
			c.late = true
			tell := s.decideNow(c)
			s.mu.Unlock()
			tell()
		case <-end.C:
			over = true
		case <-ctx.Done():
			if over = !time.Now().Before(q.Until); over {
				continue // both deadlines are the same
			}
			s.mu.Lock()
			c.asking = false
			s.giveUp(c)
			s.mu.Unlock()
			return driver.AcquireReply{}, gone(ctx, "acquire", q.Name)
		}
	}
}

var (
	errLate  = errors.New("the request expired before it was served")
	errMute  = errors.New("no answer yet")
	errBoth  = errors.New("another node has the same store ID: one server is configured twice")
	errDoubt = errors.New("its vote is not counted: an earlier release got no answer and may still arrive")
)

func (s *Store) check(q driver.AcquireRequest) error {
	switch {
	case q.Vote != nil:
		return fmt.Errorf("%w: a quorum cannot be a node of another quorum", driver.ErrInvalid)
	case q.Weight < 1 || q.Weight > q.Limit || q.Limit > driver.Unlimited:
		return fmt.Errorf("%w: acquire %q: weight %d is not between 1 and its limit %d", driver.ErrInvalid, q.Name, q.Weight, q.Limit)
	case !q.Exclusive() && q.Limit != driver.Unlimited && len(s.nodes) > 1:
		return fmt.Errorf("%w: acquire %q: a quorum does not support semaphore permits, because two majorities may each see room for the last one", driver.ErrInvalid, q.Name)
	case len(q.With) > 0:
		return fmt.Errorf("%w: acquire %q and others: a quorum acquires one name at a time", driver.ErrInvalid, q.Name)
	case q.TTL <= 0:
		return fmt.Errorf("%w: acquire %q: TTL %v is not positive", driver.ErrInvalid, q.Name, q.TTL)
	case s.memory > 0 && q.TTL > s.memory:
		return fmt.Errorf("%w: acquire %q: TTL %v is longer than the %v of this quorum; set Config.Longest to the same larger value in all clients", driver.ErrInvalid, q.Name, q.TTL, s.memory)
	}
	return driver.CheckName(q.Name)
}

func gone(ctx context.Context, op, name string) error {
	if ctx.Err() == nil {
		return nil
	}
	return &driver.UnavailableError{Op: op, Name: name, Cause: context.Cause(ctx)}
}

// checkUntil returns an error if the request has expired.
func late(op, name string, until time.Time) error {
	if time.Now().Before(until) {
		return nil
	}
	return &driver.UnavailableError{Op: op, Name: name, Cause: errLate}
}

// beginAcquire starts an Acquire for a token. The caller holds s.mu.
func (s *Store) begin(q driver.AcquireRequest) *acquisition {
	c := s.at(q.Name, q.Token)
	s.latest[q.Token] = c
	if !c.open || c.won { // it has no queue entry to keep
		c.ticket = s.clock.tick()
	}
	c.AcquireRequest, c.open, c.try, c.late = q, true, !q.Queue, false
	s.again(c, false)
	return c
}

// startRound sends a vote request to all nodes. The caller holds s.mu.
func (s *Store) again(c *acquisition, yield bool) {
	c.round = s.clock.tick()
	c.asking, c.won, c.fence, c.offers, c.offering = true, false, 0, 0, false
	for _, l := range c.lanes {
		s.sendVoteRequest(c, l, yield)
	}
}

// decide returns the reply of Acquire if the votes decide it. expired forces a decision
// now.
func (s *Store) decide(c *acquisition, over bool) (answer driver.AcquireReply, done bool, err error) {
	tell := func() {}
	defer func() { tell() }()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkDuplicateNodes(); err != nil {
		c.asking = false
		s.giveUp(c)
		return driver.AcquireReply{}, true, err
	}
	n := s.count(c)
	enough := n.said >= s.need
	agreed := n.held >= s.need && s.agrees(c)
	switch {
	case n.direct >= s.need && agreed:
		c.asking, c.won = false, true
		c.rest()
		s.forget(c)
		return driver.AcquireReply{Held: true, Fence: c.fence}, true, nil
	case over && !enough, n.said+n.pending < s.need:
		c.asking = false
		err := s.unavailable("acquire", c.Name, c.errs())
		var u *driver.UnavailableError
		if c.try || errors.As(err, &u) && u.Refused || !errors.As(err, &u) {
			s.giveUp(c)
		}
		return driver.AcquireReply{}, true, err
	case n.held >= s.need && !agreed && !over:
	case agreed && !over: // some votes come from a hand-off, whose TTL is short
		s.again(c, false)
	case c.try && enough && !over:
		return s.attempt(c, n)
	case over, enough && n.pending == 0:
		c.asking = false
		answer = s.busy(c)
		if c.try {
			s.giveUp(c)
		} else {
			tell = s.decideNow(c) // from now on nodes are queried without a caller
		}
		return answer, true, nil
	}
	return answer, false, nil
}

// decideTry decides on a request that does not wait. If several requests arrive at once,
// each may have the votes of a few nodes. Then this request queues with the others until
// the oldest has all votes. The caller holds s.mu.
func (s *Store) attempt(c *acquisition, n tally) (answer driver.AcquireReply, done bool, err error) {
	const enough = 3 // attempts to relinquish; by then the request with the most votes holds the lock, or was cancelled
	none := n.held+n.pending < s.need
	lost := n.another >= s.need || none && n.held == 0
	switch {
	case !c.Queue && lost, c.Queue && lost && n.pending == 0 && c.offers > enough:
		c.asking = false
		answer = s.busy(c)
		s.giveUp(c)
		return answer, true, nil
	case !c.Queue && none:
		c.Queue = true
		s.again(c, true)
	}
	return answer, false, nil
}

// nodeErrors returns why each node has no vote in this round, or nil for a node that
// voted.
func (c *acquisition) errs() []error {
	errs := make([]error, len(c.lanes))
	seen := make(map[string]bool)
	for i, l := range c.lanes {
		switch {
		case l.round != c.round:
			errs[i] = errMute
		case l.state == unknown:
			errs[i] = l.err
		case l.isDoubtful():
			errs[i] = errDoubt
		case l.id != "" && seen[l.id]:
			errs[i] = errBoth
		default:
			seen[l.id] = true
		}
	}
	return errs
}

// busyReply is the reply to a request without a majority of votes. The caller holds s.mu.
func (s *Store) busy(c *acquisition) driver.AcquireReply {
	a := driver.AcquireReply{Name: c.Name}
	votes := make(map[string]int)
	var positions []int
	for _, l := range c.lanes {
		if l.state != waits || l.round != c.round {
			continue
		}
		votes[l.holder]++
		if a.Holder == "" || votes[l.holder] > votes[a.Holder] {
			a.Holder, a.Remaining = l.holder, l.remaining
		}
		positions = append(positions, l.position)
	}
	if !c.try {
		a.Ticket, a.Round, a.Position = c.ticket, c.round, 1
		if slices.Sort(positions); len(positions) >= s.need {
			a.Position = positions[s.need-1] // a few nodes may not have received the last release yet
		}
	}
	if a.Holder == "" {
		a.Remaining = driver.WaiterTTL
	}
	return a
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

// Cancel implements driver.Store. Nodes that do not answer get the cancel later, in the
// background.
func (s *Store) Cancel(ctx context.Context, q driver.AcquireRequest) error {
	if q.Until.IsZero() {
		q.Until = deadline(ctx)
	}
	if err := firstErr(gone(ctx, "abandon", q.Name), late("abandon", q.Name, q.Until)); err != nil {
		return err
	}
	poll := s.poll()
	s.mu.Lock()
	c := s.at(q.Name, q.Token)
	c.AcquireRequest = q
	c.rest()
	for i, l := range c.lanes {
		s.cancelOn(c, l, func(err error) { poll.record(i, yes, err) })
	}
	s.mu.Unlock()
	_, err := poll.result(ctx, "abandon", q.Name, q.Until)
	return err
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	if r.Until.IsZero() {
		r.Until = time.Now().Add(operation)
	}
	if err := firstErr(gone(ctx, "release", r.Name), late("release", r.Name, r.Until)); err != nil {
		return false, err
	}
	s.clock.saw(r.Fence)
	r.Vote = &driver.VoteRequest{Fence: s.clock.tick(), RecoveryWindow: s.memory}
	poll := s.poll()
	s.mu.Lock()
	c := s.at(r.Name, r.Token)
	asked := c.Client != "" // by this client, not by another process; where it does not hold the lock, it may be queued
	c.rest()
	c.won = false
	for i, l := range c.lanes {
		s.enqueue(l, s.longest, s.releasing(c, l, r, asked, func(a nodeAnswer, err error) { poll.record(i, a, err) }))
	}
	s.mu.Unlock()
	return poll.result(ctx, "release", r.Name, r.Until)
}

// newRelease returns the delivery of a release to one node. A release does not remove a
// queue entry. So it sends a cancel instead if the token may be queued on the node, or if
// the delivery is repeated because an earlier request may arrive after it. The caller
// holds s.mu.
func (s *Store) releasing(c *acquisition, l *nodeQueue, r driver.ReleaseRequest, asked bool, say func(nodeAnswer, error)) *delivery {
	keep := time.Now().Add(r.Reserve)
	var freed, released, abandons bool
	q := c.AcquireRequest
	q.Vote = &driver.VoteRequest{Ticket: c.ticket, Fence: r.Vote.Fence, RecoveryWindow: s.memory}
	begin := func() bool {
		abandons = asked && (l.state != held || released)
		r.Until = time.Now().Add(operation) // of this delivery
		q.Until = r.Until
		return true
	}
	send := func() (err error) {
		ctx, cancel := within(r.Until)
		defer cancel()
		if abandons {
			return l.node.Cancel(ctx, q)
		}
		r := r
		if r.Reserve > 0 { // reserved until then, however late the release is delivered
			r.Reserve = max(time.Until(keep), 0)
		}
		freed, err = l.node.Release(ctx, r)
		return err
	}
	e := &delivery{begin: begin, send: send, ends: true}
	e.end = func(err error) (tell func()) {
		l.recordCancel(e.sent, r.Until, err)
		released = released || err == nil
		said := no
		switch {
		case abandons:
			said = none
		case freed:
			said = yes
		}
		return func() { say(said, err) }
	}
	return e
}

// Revoke implements driver.Store.
func (s *Store) Revoke(ctx context.Context, name string, fence uint64) (bool, error) {
	if err := firstErr(driver.CheckName(name), gone(ctx, "break", name)); err != nil {
		return false, err
	}
	poll := s.poll()
	poll.strict = true // a few nodes may know the lease by an older fence
	until := deadline(ctx)
	for i, n := range s.nodes {
		go func() {
			ctx, cancel := within(until)
			defer cancel()
			broken, err := n.Revoke(ctx, name, fence)
			poll.record(i, toAnswer(broken), err)
		}()
	}
	return poll.result(ctx, "break", name, until)
}
