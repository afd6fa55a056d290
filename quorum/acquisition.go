package quorum

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// An acquisition is the state of one token on one name while requests for it are pending,
// or while it is queued: mainly what each node has answered. The Store's mutex guards its
// fields.
type acquisition struct {
	driver.AcquireRequest
	key      claimKey
	ticket   uint64       // position in the queues of all nodes: the smallest is served first
	lanes    []*nodeQueue // by node
	round    uint64       // of the latest Acquire; a vote counts only if it was requested since then
	open     bool         // the lock is still wanted
	try      bool         // the caller does not wait in the queue
	asking   bool         // Acquire has not returned
	late     bool         // do not wait for the remaining nodes if a majority has answered
	won      bool         // in this round, and the client was told
	fence    uint64       // a majority must know it before the lock is granted; 0: none yet
	offers   int          // how often this round relinquished its votes to older requests
	offering bool         // relinquishTimer is running
	offered  *time.Timer
	touched  time.Time
	changed  chan struct{} // wakes Acquire
}

// An acquisitionKey identifies an acquisition. The names of a multi-lock share one token.
type claimKey struct{ name, token string }

// A queueKey identifies a nodeQueue, also after its acquisition was removed.
type lanekey struct {
	claimKey
	node int
}

// acquisitionFor returns the acquisition of a token on a name, and creates it if there is
// none. The caller holds s.mu.
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

// evictUnused removes a few acquisitions that were unused for so long that their queue
// entries have expired. The caller holds s.mu.
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

// hasLateMessages reports whether a message without an answer may still arrive at a node.
// Without this state, such a message could be the last that the node receives for the
// token.
func (c *acquisition) unsure() bool {
	now := time.Now()
	for _, l := range c.lanes {
		if now.Before(l.late) || now.Before(l.doubt) || now.Before(l.swing) {
			return true
		}
	}
	return false
}

// jitter is a small delay that separates acquisitions that do the same thing at once.
func (c *acquisition) spread() time.Duration {
	return time.Duration(1+c.ticket%1000) * time.Microsecond
}

func (s *Store) drop(c *acquisition) {
	delete(s.claims, c.key)
	if s.latest[c.Token] == c {
		delete(s.latest, c.Token)
	}
}

// deactivate stops the timer of an acquisition, and with it all activity of its own.
func (c *acquisition) rest() {
	c.open = false
	if c.offered != nil {
		c.offered.Stop()
	}
}

// removeIfDone removes an acquisition whose state is no longer needed. A granted one is
// needed while it may still have an entry in a node's queue. The caller holds s.mu.
func (s *Store) forget(c *acquisition) {
	if c.open || c.busy() || c.unsure() || s.claims[c.key] != c {
		return
	}
	for _, l := range c.lanes {
		if c.won && l.state != held {
			return // evictUnused removes it
		}
	}
	s.drop(c)
}

// sendVoteRequest queues a vote request for a node. If relinquish is set, the node gives
// the vote to an older waiter, if it has one. The caller holds s.mu.
func (s *Store) sendVoteRequest(c *acquisition, l *nodeQueue, yield bool) {
	round := c.round
	var q driver.AcquireRequest
	var answer driver.AcquireReply
	var sent time.Time
	var clashes bool
	begin := func() bool {
		told := c.fence != 0 && l.state == held && l.round == round && l.fence >= c.fence
		if !c.open || told && !yield { // another request would raise the fence again and again
			return false
		}
		q, sent = c.voteRequest(s.memory, yield), time.Now()
		clashes = l.clashes(mode{q.Weight, q.Limit})
		if yield {
			l.state, l.round = unknown, 0 // the node may be relinquishing the vote, whatever a notification says
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
	l.undo = nil // a pending cancel must be sent before this request, and a later one after it
	s.enqueue(l, driver.WaiterTTL, &delivery{begin: begin, send: send, end: end})
}

// cancelOtherMode cancels a token on a node that may hold it with another weight.
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

// newVoteRequest returns the request that is sent to a node.
func (c *acquisition) voteRequest(memory time.Duration, yield bool) driver.AcquireRequest {
	q := c.AcquireRequest
	q.Vote = &driver.VoteRequest{Ticket: c.ticket, Fence: c.fence, RecoveryWindow: memory, Relinquish: yield}
	if q.Vote.Fence == 0 {
		q.Vote.Fence = c.round
	}
	if !c.asking { // sent without a caller: the client may be dead
		q.TTL, q.Until = q.HandoffTTL(), time.Now().Add(operation)
	}
	return q
}

// handleReply records a node's reply. It returns a function to be called without the
// mutex. The caller holds s.mu.
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

// recordGrant records a notification of a grant. It counts only if its fence is larger
// than the one in the last "not granted" reply, which is the largest that the node had
// issued. A smaller fence belongs to an earlier queue entry, and counting it would count
// a lease that has ended.
func (l *nodeQueue) recordGrant(fence uint64, by string) {
	if l.busy {
		l.grant, l.by = fence, by
	}
	if l.state == waits && fence > l.fence {
		l.state, l.fence, l.id, l.push = held, fence, by, true
	}
}

// A tally counts the votes of one round.
type tally struct {
	held    int // votes for this acquisition
	direct  int // votes that answer a request and are no notification
	agreed  int // votes from nodes that know the fence
	said    int // nodes that have answered
	pending int // nodes that may still answer
	another int // known votes for the strongest rival
}

// countVotes counts the votes of this round. A store that is configured as two nodes has
// one vote.
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

// evaluate acts on the votes. It returns a function to be called without the mutex. The
// caller holds s.mu.
func (s *Store) decideNow(c *acquisition) (tell func()) {
	nothing := func() {}
	n := s.count(c)
	if n.said >= s.need || n.said+n.pending < s.need { // otherwise nothing can be decided
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

// notifyGranted returns a function that notifies the client of its grant. The caller
// holds s.mu.
func (s *Store) grant(c *acquisition) (tell func()) {
	c.won = true
	c.rest()
	return s.to(c.Client, driver.Event{Kind: driver.EventGranted, Token: c.Token, Fence: c.fence, Ticket: c.ticket, Round: c.round})
}

// ensureFenceKnown makes a majority of the nodes know the fence of an acquisition that
// has a majority of the votes. The next holder has the vote of at least one of these
// nodes, so it gets a larger fence. Usually all nodes have accepted the proposed fence,
// and nothing is sent. The caller holds s.mu.
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

// fenceKnown reports whether a majority knows the fence, which is the largest of all
// counted votes.
func (s *Store) agrees(c *acquisition) bool {
	for _, l := range c.lanes {
		if l.state == held && l.round == c.round {
			c.fence = max(c.fence, l.fence)
		}
	}
	return s.count(c).agreed >= s.need
}

// scheduleRelinquish resolves a split vote: no acquisition has a majority. It
// relinquishes the votes of this one to older waiters; each node knows whether it has
// one. All nodes use the same order, so they converge on the oldest. The caller holds
// s.mu.
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
	wait += time.Duration(c.ticket) % wait // jitter
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

// isNotified reports whether a node has notified the acquisition of a hand-off. Then the
// other nodes' replies about the holder are old, and their votes are on their way.
func (c *acquisition) notified() bool {
	return slices.ContainsFunc(c.lanes, func(l *nodeQueue) bool { return l.push && l.state == held })
}

func (s *Store) relinquish(c *acquisition) {
	for _, l := range c.lanes {
		if (l.state == held || c.try) && len(l.next) == 0 { // the client of a try may not listen for notifications
			s.sendVoteRequest(c, l, true)
		}
	}
}

// cancelAll cancels an acquisition on all nodes, in the background. The caller holds
// s.mu.
func (s *Store) giveUp(c *acquisition) {
	c.rest()
	for _, l := range c.lanes {
		s.cancelOn(c, l, func(error) {})
	}
}

// cancelOn cancels an acquisition on one node. It joins a cancel that is already pending,
// so that repeated tries do not fill the queue of a node that does not answer. The caller
// holds s.mu.
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

// newCancelRequest returns the request that cancels an acquisition. The caller holds
// s.mu.
func (s *Store) cancelRequest(c *acquisition) driver.AcquireRequest {
	q := c.AcquireRequest
	q.Vote = &driver.VoteRequest{Ticket: c.ticket, Fence: s.clock.tick(), RecoveryWindow: s.memory}
	return q
}
