package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// straggle is how long an answer waits for nodes that have not said anything yet, once
// enough others have.
const straggle = 50 * time.Millisecond

// Acquire implements dibs.Store: all nodes are asked at once, and the answer is there
// when most have said the same, or cannot any more.
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
				continue // both ends are one
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
	errLate  = errors.New("the request is void: it came too late")
	errMute  = errors.New("no answer so far")
	errBoth  = errors.New("it answers for another node, too: one server is named twice")
	errDoubt = errors.New("its vote does not count: an earlier release was not answered, and may still arrive")
)

func (s *Store) check(q driver.AcquireRequest) error {
	switch {
	case q.Vote != nil:
		return fmt.Errorf("%w: a quorum is no node of another one", driver.ErrInvalid)
	case q.Weight < 1 || q.Weight > q.Limit || q.Limit > driver.Unlimited:
		return fmt.Errorf("%w: claim on %q weighs %d of %d", driver.ErrInvalid, q.Name, q.Weight, q.Limit)
	case !q.Exclusive() && q.Limit != driver.Unlimited && len(s.nodes) > 1:
		return fmt.Errorf("%w: %q: a quorum cannot count permits: two majorities may each see room for the last one", driver.ErrInvalid, q.Name)
	case len(q.With) > 0:
		return fmt.Errorf("%w: claim on %q and others: a quorum takes one name at a time", driver.ErrInvalid, q.Name)
	case q.TTL <= 0:
		return fmt.Errorf("%w: claim on %q for %v", driver.ErrInvalid, q.Name, q.TTL)
	case s.memory > 0 && q.TTL > s.memory:
		return fmt.Errorf("%w: %q for %v: the longest lease of this quorum is %v: set Config.Longest, the same for all clients", driver.ErrInvalid, q.Name, q.TTL, s.memory)
	}
	return driver.CheckName(q.Name)
}

func gone(ctx context.Context, op, name string) error {
	if ctx.Err() == nil {
		return nil
	}
	return &driver.UnavailableError{Op: op, Name: name, Cause: context.Cause(ctx)}
}

// late refuses a request that is void by now.
func late(op, name string, until time.Time) error {
	if time.Now().Before(until) {
		return nil
	}
	return &driver.UnavailableError{Op: op, Name: name, Cause: errLate}
}

// begin begins to ask for a claim. The caller holds s.mu.
func (s *Store) begin(q driver.AcquireRequest) *acquisition {
	c := s.at(q.Name, q.Token)
	s.latest[q.Token] = c
	if !c.open || c.won { // it has no place to keep
		c.ticket = s.clock.tick()
	}
	c.AcquireRequest, c.open, c.try, c.late = q, true, !q.Queue, false
	s.again(c, false)
	return c
}

// again asks all nodes. The caller holds s.mu.
func (s *Store) again(c *acquisition, yield bool) {
	c.round = s.clock.tick()
	c.asking, c.won, c.fence, c.offers, c.offering = true, false, 0, 0, false
	for _, l := range c.lanes {
		s.sendVoteRequest(c, l, yield)
	}
}

// decide returns the answer to a round, if there is one. over says that it must be now.
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
	case agreed && !over: // some by a hand-off, which is short
		s.again(c, false)
	case c.try && enough && !over:
		return s.attempt(c, n)
	case over, enough && n.pending == 0:
		c.asking = false
		answer = s.busy(c)
		if c.try {
			s.giveUp(c)
		} else {
			tell = s.decideNow(c) // what follows is the quorum's own affair from now on
		}
		return answer, true, nil
	}
	return answer, false, nil
}

// attempt decides on a claim that does not want to wait. If others want the name in the same
// moment, each may have the votes of a few nodes: then it stands in line with them until
// the oldest has them all. The caller holds s.mu.
func (s *Store) attempt(c *acquisition, n tally) (answer driver.AcquireReply, done bool, err error) {
	const enough = 3 // offers: whoever seemed to have most has kept it, or gone
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

// errs is why each node has not answered, in this round.
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

// busy is the answer to a claim that has not the votes of most. The caller holds s.mu.
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
			a.Position = positions[s.need-1] // a few may not have heard of the last release
		}
	}
	if a.Holder == "" {
		a.Remaining = driver.WaiterTTL
	}
	return a
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

// Abandon implements dibs.Store. Nodes that are mute are told in the background.
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

// Release implements dibs.Store.
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
	asked := c.Client != "" // here, and not by another process: where it does not hold, it may wait
	c.rest()
	c.won = false
	for i, l := range c.lanes {
		s.enqueue(l, s.longest, s.releasing(c, l, r, asked, func(a nodeAnswer, err error) { poll.record(i, a, err) }))
	}
	s.mu.Unlock()
	return poll.result(ctx, "release", r.Name, r.Until)
}

// releasing is what releases a claim at one node. If it may wait there, or is to be sent once
// more because an earlier question may arrive after it, it is an abandon: a release
// leaves the place in the queue. The caller holds s.mu.
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
		if r.Reserve > 0 { // until then, however late it is delivered
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

// Break implements dibs.Store.
func (s *Store) Revoke(ctx context.Context, name string, fence uint64) (bool, error) {
	if err := firstErr(driver.CheckName(name), gone(ctx, "break", name)); err != nil {
		return false, err
	}
	poll := s.poll()
	poll.strict = true // a few may know it by a fence that it had before
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
