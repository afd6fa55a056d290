package quorum

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A claim is what a quorum knows of one token while questions about it are under way, or
// while it waits: what each node has said. Its fields are guarded by the Store's mutex.
type acquisition struct {
	driver.AcquireRequest
	key      claimKey
	ticket   uint64       // its place in the queues
	lanes    []*nodeQueue // by node
	round    uint64       // the last Acquire: a vote counts if it was asked for since then
	open     bool         // wanted still
	try      bool         // its caller does not wait
	asking   bool         // Acquire has not returned yet
	late     bool         // nodes that have not answered yet are not waited for, if enough have
	won      bool         // it was told that it holds, in this round
	fence    uint64       // that most nodes must know before it holds, or zero
	offers   int          // how often it has offered what it holds to older ones, in this round
	offering bool         // it is about to, again
	offered  *time.Timer
	touched  time.Time
	changed  chan struct{} // tells Acquire to look again
}

// A key is what claims are known by: the names of a set have one token.
type claimKey struct{ name, token string }

// A lanekey is what lanes are known by, also when their claims are forgotten.
type lanekey struct {
	claimKey
	node int
}

// at returns the claim of a token on a name, a new one if there is none. The caller
// holds s.mu.
func (s *Store) at(name, token string) *acquisition {
	at := claimKey{name, token}
	c := s.claims[at]
	if c == nil {
		c = &acquisition{key: at, changed: make(chan struct{}, 1)}
		c.Name, c.Token = name, token
		for i, n := range s.nodes {
			c.lanes = append(c.lanes, &nodeQueue{node: n, claim: c, at: lanekey{at, i}})
		}
		s.sweep()
		s.claims[at] = c
	}
	c.touched = time.Now()
	return c
}

// sweep drops a few claims that nobody has touched for so long that their places in the
// queues are gone. The caller holds s.mu.
func (s *Store) sweep() {
	const forgotten = 2 * driver.WaiterTTL
	looks := 2
	for _, c := range s.claims {
		if looks--; looks < 0 {
			return
		}
		if !c.busy() && !c.unsure() && time.Since(c.touched) > forgotten {
			c.rest()
			s.drop(c)
		}
	}
}

func (c *acquisition) busy() bool {
	for _, l := range c.lanes {
		if l.busy || l.owed > 0 {
			return true
		}
	}
	return false
}

// unsure reports whether something that was sent for a claim, and not answered, may still
// arrive: who forgot that would let it be the last that a node hears.
func (c *acquisition) unsure() bool {
	now := time.Now()
	for _, l := range c.lanes {
		if now.Before(l.late) || now.Before(l.doubt) || now.Before(l.swing) {
			return true
		}
	}
	return false
}

// spread is how much later than others this one does what several do in one moment.
func (c *acquisition) spread() time.Duration {
	return time.Duration(1+c.ticket%1000) * time.Microsecond
}

func (s *Store) drop(c *acquisition) {
	delete(s.claims, c.key)
	if s.latest[c.Token] == c {
		delete(s.latest, c.Token)
	}
}

// rest stops what goes on by itself.
func (c *acquisition) rest() {
	c.open = false
	if c.offered != nil {
		c.offered.Stop()
	}
}

// forget drops a claim of which nothing has to be known any more. One that holds has to
// be known while it may still have a place in some queue. The caller holds s.mu.
func (s *Store) forget(c *acquisition) {
	if c.open || c.busy() || c.unsure() || s.claims[c.key] != c {
		return
	}
	for _, l := range c.lanes {
		if c.won && l.state != held {
			return // until sweep
		}
	}
	s.drop(c)
}

// ask puts the question to a node. The caller holds s.mu.
func (s *Store) sendVoteRequest(c *acquisition, l *nodeQueue, yield bool) {
	round := c.round
	var q driver.AcquireRequest
	var answer driver.AcquireReply
	var sent time.Time
	var clashes bool
	begin := func() bool {
		told := c.fence != 0 && l.state == held && l.round == round && l.fence >= c.fence
		if !c.open || told && !yield { // to ask again would raise the fence for ever
			return false
		}
		q, sent = c.voteRequest(s.memory, yield), time.Now()
		clashes = l.clashes(mode{q.Weight, q.Limit})
		if yield {
			l.state, l.round = unknown, 0 // it may be giving the name away, whatever a push says
		}
		return true
	}
	send := func() (err error) {
		ctx, cancel := within(q.Until)
		defer cancel()
		if clashes {
			if err := s.relinquishShared(ctx, l, q); err != nil {
				return err
			}
		}
		answer, err = l.node.Acquire(ctx, q)
		return err
	}
	end := func(err error) (tell func()) {
		if mayPass(err) {
			l.recordUnanswered(q.Until)
		}
		if yield && err != nil {
			l.distrustUntil(q.Until.Add(slack))
		}
		l.asked = sent
		return s.handleReply(c, l, answer, err, round)
	}
	l.undo = nil // that is to come after
	s.enqueue(l, driver.WaiterTTL, &delivery{begin: begin, send: send, end: end})
}

// yieldShare has a node forget a token that it may have for another weight.
func (s *Store) relinquishShared(ctx context.Context, l *nodeQueue, q driver.AcquireRequest) error {
	sent := time.Now()
	err := l.node.Cancel(ctx, q)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.recordCancel(sent, q.Until, err); l.share == (mode{}) {
		l.share = mode{q.Weight, q.Limit}
	}
	return err
}

// question is what a node is asked.
func (c *acquisition) voteRequest(memory time.Duration, yield bool) driver.AcquireRequest {
	q := c.AcquireRequest
	q.Vote = &driver.VoteRequest{Ticket: c.ticket, Fence: c.fence, RecoveryWindow: memory, Relinquish: yield}
	if q.Vote.Fence == 0 {
		q.Vote.Fence = c.round
	}
	if !c.asking { // it is the quorum's own question: the client may be dead
		q.TTL, q.Until = q.HandoffTTL(), time.Now().Add(operation)
	}
	return q
}

// heard notes a node's answer, and returns what to do without the mutex. The caller holds
// s.mu.
func (s *Store) handleReply(c *acquisition, l *nodeQueue, a driver.AcquireReply, err error, round uint64) (tell func()) {
	l.round, l.err, l.push = round, err, false
	s.identify(l.node, a.Node)
	switch {
	case err != nil:
		l.state = unknown
	case a.Held:
		l.state, l.fence, l.id = held, a.Fence, a.Node
		s.clock.saw(a.Fence)
	default:
		l.state, l.fence, l.id = waits, a.Fence, a.Node
		l.holder, l.remaining, l.position = a.Holder, a.Remaining, a.Position
		l.recordGrant(l.grant, l.by)
	}
	l.grant = 0
	return s.decideNow(c)
}

// granted notes a push. It is true only if it is younger than the answer that said "not
// yet", which names the largest fence until then: one from a place that was lost since
// would be counted with a lease that has ended.
func (l *nodeQueue) recordGrant(fence uint64, by string) {
	if l.busy {
		l.grant, l.by = fence, by
	}
	if l.state == waits && fence > l.fence {
		l.state, l.fence, l.id, l.push = held, fence, by, true
	}
}

// A count is how the nodes have voted, in this round.
type tally struct {
	held    int // for the claim
	direct  int // of these in answer to a question, not by a push
	agreed  int // of these, that know its fence
	said    int // that have answered
	pending int // that may yet
	another int // for another claim, at most, as far as is known
}

// count counts the votes. A store that answers for two nodes has one.
func (s *Store) count(c *acquisition) (n tally) {
	voted := make(map[string]bool, len(c.lanes))
	others := make(map[string]int, 1)
	for _, l := range c.lanes {
		switch {
		case l.round != c.round:
			n.pending++
			continue
		case l.state == unknown, l.isDoubtful():
			continue
		}
		if l.id != "" && voted[l.id] {
			continue
		}
		voted[l.id] = true
		n.said++
		if l.state == waits {
			if l.holder != "" {
				others[l.holder]++
				n.another = max(n.another, others[l.holder])
			}
			continue
		}
		n.held++
		if !l.push {
			n.direct++
		}
		if l.fence >= c.fence {
			n.agreed++
		}
	}
	if c.late && n.said >= s.need {
		n.pending = 0
	}
	if c.notified() {
		n.another = 0
	}
	return n
}

// settle does what follows from the votes, and returns what to do without the mutex.
// The caller holds s.mu.
func (s *Store) decideNow(c *acquisition) (tell func()) {
	nothing := func() {}
	n := s.count(c)
	if n.said >= s.need || n.said+n.pending < s.need { // else there is nothing to decide
		select {
		case c.changed <- struct{}{}:
		default:
		}
	}
	if !c.open {
		return nothing
	}
	switch {
	case n.held >= s.need && !s.agree(c):
	case n.held >= s.need && !c.asking && !c.won:
		return s.grant(c)
	case n.held < s.need && n.pending == 0 && c.Queue && (c.try || !c.asking && n.held > 0 && n.another < s.need):
		s.scheduleRelinquish(c)
	}
	return nothing
}

// grant tells the client of a claim that it holds, since its round began. The caller
// holds s.mu.
func (s *Store) grant(c *acquisition) (tell func()) {
	c.won = true
	c.rest()
	return s.to(c.Client, driver.Event{Kind: driver.EventGranted, Token: c.Token, Fence: c.fence, Ticket: c.ticket, Round: c.round})
}

// agree sees to it that most nodes know the fence of a claim that has most votes, so that
// the next one, who has the vote of one of them, has a larger one. In the usual case
// they have all taken the one that was proposed. The caller holds s.mu.
func (s *Store) agree(c *acquisition) bool {
	if s.agrees(c) {
		return true
	}
	for _, l := range c.lanes {
		if l.state == held && l.fence < c.fence && len(l.next) == 0 {
			s.sendVoteRequest(c, l, false)
		}
	}
	return false
}

// agrees reports whether most nodes know the fence, which is the largest of all that
// count.
func (s *Store) agrees(c *acquisition) bool {
	for _, l := range c.lanes {
		if l.state == held && l.round == c.round {
			c.fence = max(c.fence, l.fence)
		}
	}
	return s.count(c).agreed >= s.need
}

// offer lets older claims have what this one holds, since nobody has the votes of most:
// each node knows whether one waits there. All nodes end with the oldest. The caller
// holds s.mu.
func (s *Store) scheduleRelinquish(c *acquisition) {
	const first, most = 5 * time.Millisecond, 500 * time.Millisecond
	if c.offering {
		return
	}
	c.offers++
	if c.offers == 1 && !c.notified() {
		s.relinquish(c)
		return
	}
	wait := min(first<<min(c.offers, 10), most)
	wait += time.Duration(c.ticket) % wait // not all at once
	round := c.round
	c.offering = true
	c.offered = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !c.open || c.round != round {
			return
		}
		if c.offering = false; s.count(c).held < s.need {
			s.relinquish(c)
		}
	})
}

// pushed tells whether the name is being handed on to a claim: what other nodes said of
// its holder is old, and their votes are on their way.
func (c *acquisition) notified() bool {
	return slices.ContainsFunc(c.lanes, func(l *nodeQueue) bool { return l.push && l.state == held })
}

func (s *Store) relinquish(c *acquisition) {
	for _, l := range c.lanes {
		if (l.state == held || c.try) && len(l.next) == 0 { // a try may have nobody who listens
			s.sendVoteRequest(c, l, true)
		}
	}
}

// giveUp undoes a claim everywhere, in the background. The caller holds s.mu.
func (s *Store) giveUp(c *acquisition) {
	c.rest()
	for _, l := range c.lanes {
		s.cancelOn(c, l, func(error) {})
	}
}

// leave undoes a claim at one node. If that is to be done already, once is enough: who
// tries again and again must not fill the lane of a node that is mute. The caller holds
// s.mu.
func (s *Store) cancelOn(c *acquisition, l *nodeQueue, done func(error)) {
	if l.undo != nil {
		l.undo.undo = append(l.undo.undo, done)
		return
	}
	var q driver.AcquireRequest
	e := &delivery{ends: true, undo: []func(error){done}}
	l.undo = e
	e.begin = func() bool {
		if q.Vote == nil {
			q = s.cancelRequest(c)
		}
		q.Until = time.Now().Add(operation) // of this delivery
		return true
	}
	e.send = func() error {
		ctx, cancel := within(q.Until)
		defer cancel()
		return l.node.Cancel(ctx, q)
	}
	e.end = func(err error) (tell func()) {
		l.recordCancel(e.sent, q.Until, err)
		if errors.Is(err, driver.ErrUnavailable) && len(l.next) == 0 {
			l.undo = e
		}
		all := e.undo
		return func() {
			for _, done := range all {
				done(err)
			}
		}
	}
	s.enqueue(l, s.longest, e)
}

// abandoned is a claim that is to be undone. The caller holds s.mu.
func (s *Store) cancelRequest(c *acquisition) driver.AcquireRequest {
	q := c.AcquireRequest
	q.Vote = &driver.VoteRequest{Ticket: c.ticket, Fence: s.clock.tick(), RecoveryWindow: s.memory}
	return q
}
