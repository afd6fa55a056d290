package quorum

import (
	"cmp"
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
	key             acquisitionKey
	ticket          uint64       // position in the queues of all nodes: the smallest is served first
	queues          []*nodeQueue // by node
	voteRound       uint64       // of the latest Acquire; a vote counts only if it was requested since then
	active          bool         // the lock is still wanted
	noWait          bool         // the caller does not wait in the queue
	inAcquire       bool         // Acquire has not returned
	skipStragglers  bool         // do not wait for the remaining nodes if a majority has answered
	granted         bool         // in this round, and the client was notified
	fence           uint64       // a majority must store it before the lock is granted; 0: none yet
	relinquished    int          // how often this round relinquished its votes to older requests
	relinquishing   bool         // relinquishTimer is running
	relinquishTimer *time.Timer
	lastUsed        time.Time
	changed         chan struct{} // wakes Acquire
}

// An acquisitionKey identifies an acquisition. The names of a multi-lock share one token.
type acquisitionKey struct{ name, token string }

// A queueKey identifies a nodeQueue, also after its acquisition was removed.
type queueKey struct {
	acquisitionKey
	node int
}

// acquisitionFor returns the acquisition of a token on a name, and creates it if there is
// none. The caller holds s.mu.
func (s *Store) acquisitionFor(name, token string) *acquisition {
	at := acquisitionKey{name, token}
	c := s.acquisitions[at]
	if c == nil {
		c = &acquisition{key: at, changed: make(chan struct{}, 1)}
		c.Name, c.Token = name, token
		for i, n := range s.nodes {
			c.queues = append(c.queues, &nodeQueue{node: n, acquisition: c, key: queueKey{at, i}})
		}
		s.evictUnused()
		s.acquisitions[at] = c
	}
	c.lastUsed = time.Now()
	return c
}

// evictUnused removes a few acquisitions that were unused for so long that their queue
// entries have expired. The caller holds s.mu.
func (s *Store) evictUnused() {
	const unused = 2 * driver.WaiterTTL
	checks := 2
	for _, c := range s.acquisitions {
		if checks--; checks < 0 {
			return
		}
		if !c.hasDeliveries() && !c.hasLateMessages() && time.Since(c.lastUsed) > unused {
			c.deactivate()
			s.remove(c)
		}
	}
}

func (c *acquisition) hasDeliveries() bool {
	for _, nq := range c.queues {
		if nq.sending || nq.undelivered > 0 {
			return true
		}
	}
	return false
}

// hasLateMessages reports whether a message without an answer may still arrive at a node.
// Without this state, such a message could be the last that the node receives for the
// token.
func (c *acquisition) hasLateMessages() bool {
	now := time.Now()
	for _, nq := range c.queues {
		if now.Before(nq.lateUntil) || now.Before(nq.uncertainUntil) || now.Before(nq.resizeUntil) {
			return true
		}
	}
	return false
}

// jitter is a small delay that separates acquisitions that do the same thing at once.
func (c *acquisition) jitter() time.Duration {
	return time.Duration(1+c.ticket%1000) * time.Microsecond
}

func (s *Store) remove(c *acquisition) {
	delete(s.acquisitions, c.key)
	if s.byToken[c.Token] == c {
		delete(s.byToken, c.Token)
	}
}

// deactivate stops the timer of an acquisition, and with it all activity of its own.
func (c *acquisition) deactivate() {
	c.active = false
	if c.relinquishTimer != nil {
		c.relinquishTimer.Stop()
	}
}

// removeIfDone removes an acquisition whose state is no longer needed. A granted one is
// needed while it may still have an entry in a node's queue. The caller holds s.mu.
func (s *Store) removeIfDone(c *acquisition) {
	if c.active || c.hasDeliveries() || c.hasLateMessages() || s.acquisitions[c.key] != c {
		return
	}
	for _, nq := range c.queues {
		if c.granted && nq.state != held {
			return // evictUnused removes it
		}
	}
	s.remove(c)
}

// sendVoteRequest queues a vote request for a node. If relinquish is set, the node gives
// the vote to an older waiter, if it has one. The caller holds s.mu.
func (s *Store) sendVoteRequest(c *acquisition, nq *nodeQueue, relinquish bool) {
	round := c.voteRound
	var q driver.AcquireRequest
	var vote driver.Vote
	var answer driver.VoteReply
	var sent time.Time
	var otherMode bool
	begin := func() bool {
		known := c.fence != 0 && nq.state == held && nq.voteRound == round && nq.fence >= c.fence
		if !c.active || known && !relinquish { // another request would raise the fence again and again
			return false
		}
		q, sent = c.newNodeRequest(), time.Now()
		vote = c.newVote(s.recoveryWindow, relinquish)
		otherMode = nq.mayHaveOtherMode(mode{q.Weight, q.Limit})
		if relinquish {
			nq.state, nq.voteRound = unknown, 0 // the node may be relinquishing the vote, whatever a notification says
		}
		return true
	}
	send := func() (err error) {
		ctx, cancel := nodeContext(q.Until)
		defer cancel()
		if otherMode {
			if err := s.cancelOtherMode(ctx, nq, q, vote); err != nil {
				return err
			}
		}
		answer, err = nq.node.AcquireVote(ctx, q, vote)
		return err
	}
	end := func(err error) (notify func()) {
		if unanswered(err) {
			nq.recordUnanswered(q.Until)
		}
		if relinquish && err != nil {
			nq.distrustUntil(q.Until.Add(slack))
		}
		nq.requestedAt = sent
		return s.handleReply(c, nq, answer, err, round)
	}
	nq.pendingCancel = nil // a pending cancel must be sent before this request, and a later one after it
	s.enqueue(nq, driver.WaiterTTL, &delivery{begin: begin, send: send, end: end})
}

// cancelOtherMode cancels a token on a node that may hold it with another weight.
func (s *Store) cancelOtherMode(ctx context.Context, nq *nodeQueue, q driver.AcquireRequest, vote driver.Vote) error {
	sent := time.Now()
	err := nq.node.CancelVote(ctx, q, vote)
	s.mu.Lock()
	defer s.mu.Unlock()
	if nq.recordCancel(sent, q.Until, err); nq.mode == (mode{}) {
		nq.mode = mode{q.Weight, q.Limit}
	}
	return err
}

// newVote returns the vote that is sent to a node.
func (c *acquisition) newVote(recoveryWindow time.Duration, relinquish bool) driver.Vote {
	return driver.Vote{Ticket: c.ticket, Fence: cmp.Or(c.fence, c.voteRound), RecoveryWindow: recoveryWindow, Relinquish: relinquish}
}

// newNodeRequest returns the request that is sent to a node.
func (c *acquisition) newNodeRequest() driver.AcquireRequest {
	q := c.AcquireRequest
	if !c.inAcquire { // sent without a caller: the client may be dead
		q.TTL, q.Until = q.HandoffTTL(), time.Now().Add(operationTimeout)
	}
	return q
}

// handleReply records a node's reply. It returns a function to be called without the
// mutex. The caller holds s.mu.
func (s *Store) handleReply(c *acquisition, nq *nodeQueue, a driver.VoteReply, err error, round uint64) (notify func()) {
	nq.voteRound, nq.err, nq.byNotification = round, err, false
	s.recordStoreID(nq.node, a.Node)
	switch {
	case err != nil:
		nq.state = unknown
	case a.Held:
		nq.state, nq.fence, nq.storeID = held, a.Fence, a.Node
		s.clock.observe(a.Fence)
	default:
		nq.state, nq.fence, nq.storeID = waiting, a.Fence, a.Node
		nq.holder, nq.remaining, nq.position = holderID{a.Holder, a.Reserved}, a.Remaining, a.Position
		nq.recordGrant(nq.notifiedFence, nq.notifiedBy)
	}
	nq.notifiedFence = 0
	return s.evaluate(c)
}

// recordGrant records a notification of a grant. It counts only if its fence is larger
// than the one in the last "not granted" reply, which is the largest that the node had
// issued. A smaller fence belongs to an earlier queue entry, and counting it would count
// a lease that has ended.
func (nq *nodeQueue) recordGrant(fence uint64, by string) {
	if nq.sending {
		nq.notifiedFence, nq.notifiedBy = fence, by
	}
	if nq.state == waiting && fence > nq.fence {
		nq.state, nq.fence, nq.storeID, nq.byNotification = held, fence, by, true
	}
}

// A tally counts the votes of one round.
type tally struct {
	votes     int // votes for this acquisition
	confirmed int // votes that answer a request and are no notification
	withFence int // votes from nodes with the fence
	answered  int // nodes that have answered
	pending   int // nodes that may still answer
	topRival  int // votes for the strongest rival, as far as reported
}

// countVotes counts the votes of this round. A store that is configured as two nodes has
// one vote.
func (s *Store) countVotes(c *acquisition) (n tally) {
	voted := make(map[string]bool, len(c.queues))
	others := make(map[holderID]int, 1)
	for _, nq := range c.queues {
		switch {
		case nq.voteRound != c.voteRound:
			n.pending++
			continue
		case nq.state == unknown, nq.isUncertain():
			continue
		}
		if nq.storeID != "" && voted[nq.storeID] {
			continue
		}
		voted[nq.storeID] = true
		n.answered++
		if nq.state == waiting {
			if nq.holder.token != "" {
				others[nq.holder]++
				n.topRival = max(n.topRival, others[nq.holder])
			}
			continue
		}
		n.votes++
		if !nq.byNotification {
			n.confirmed++
		}
		if nq.fence >= c.fence {
			n.withFence++
		}
	}
	if c.skipStragglers && n.answered >= s.majority {
		n.pending = 0
	}
	if c.isNotified() {
		n.topRival = 0
	}
	return n
}

// evaluate acts on the votes. It returns a function to be called without the mutex. The
// caller holds s.mu.
func (s *Store) evaluate(c *acquisition) (notify func()) {
	nothing := func() {}
	n := s.countVotes(c)
	if n.answered >= s.majority || n.answered+n.pending < s.majority { // otherwise nothing can be decided
		select {
		case c.changed <- struct{}{}:
		default:
		}
	}
	if !c.active {
		return nothing
	}
	switch {
	case n.votes >= s.majority && !s.ensureFenceStored(c):
	case n.votes >= s.majority && !c.inAcquire && !c.granted:
		return s.notifyGranted(c)
	case n.votes < s.majority && n.pending == 0 && c.Queue && (c.noWait || !c.inAcquire && n.votes > 0 && n.topRival < s.majority):
		s.scheduleRelinquish(c)
	}
	return nothing
}

// notifyGranted returns a function that notifies the client of its grant. The caller
// holds s.mu.
func (s *Store) notifyGranted(c *acquisition) (notify func()) {
	c.granted = true
	c.deactivate()
	return s.notifierOf(c.Client, driver.Event{Kind: driver.EventGranted, Token: c.Token, Fence: c.fence, Ticket: c.ticket, Round: c.voteRound})
}

// ensureFenceStored makes a majority of the nodes store the fence of an acquisition that
// has a majority of the votes. It sends the fence to nodes that have a smaller one. The
// next holder has the vote of at least one of these nodes, so it gets a larger fence.
// Usually all nodes have accepted the proposed fence, and nothing is sent. The caller
// holds s.mu.
func (s *Store) ensureFenceStored(c *acquisition) bool {
	if s.fenceStored(c) {
		return true
	}
	for _, nq := range c.queues {
		if nq.state == held && nq.fence < c.fence && len(nq.pending) == 0 {
			s.sendVoteRequest(c, nq, false)
		}
	}
	return false
}

// fenceStored reports whether a majority stores the fence, which is the largest of all
// counted votes.
func (s *Store) fenceStored(c *acquisition) bool {
	for _, nq := range c.queues {
		if nq.state == held && nq.voteRound == c.voteRound {
			c.fence = max(c.fence, nq.fence)
		}
	}
	return s.countVotes(c).withFence >= s.majority
}

// scheduleRelinquish resolves a split vote: no acquisition has a majority. It
// relinquishes the votes of this one to older waiters; each node reports whether it has
// one. All nodes use the same order, so they converge on the oldest. The caller holds
// s.mu.
func (s *Store) scheduleRelinquish(c *acquisition) {
	const first, most = 5 * time.Millisecond, 500 * time.Millisecond
	if c.relinquishing {
		return
	}
	c.relinquished++
	if c.relinquished == 1 && !c.isNotified() {
		s.relinquish(c)
		return
	}
	wait := min(first<<min(c.relinquished, 10), most)
	wait += time.Duration(c.ticket) % wait // jitter
	round := c.voteRound
	c.relinquishing = true
	c.relinquishTimer = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !c.active || c.voteRound != round {
			return
		}
		if c.relinquishing = false; s.countVotes(c).votes < s.majority {
			s.relinquish(c)
		}
	})
}

// isNotified reports whether a node has notified the acquisition of a hand-off. Then the
// other nodes' replies about the holder are old, and their votes are on their way.
func (c *acquisition) isNotified() bool {
	return slices.ContainsFunc(c.queues, func(nq *nodeQueue) bool { return nq.byNotification && nq.state == held })
}

func (s *Store) relinquish(c *acquisition) {
	for _, nq := range c.queues {
		if (nq.state == held || c.noWait) && len(nq.pending) == 0 { // the client of a try may not listen for notifications
			s.sendVoteRequest(c, nq, true)
		}
	}
}

// cancelAll cancels an acquisition on all nodes, in the background. The caller holds
// s.mu.
func (s *Store) cancelAll(c *acquisition) {
	c.deactivate()
	for _, nq := range c.queues {
		s.cancelOn(c, nq, func(error) {})
	}
}

// cancelOn cancels an acquisition on one node. It joins a cancel that is already pending,
// so that repeated tries do not fill the queue of a node that does not answer. The caller
// holds s.mu.
func (s *Store) cancelOn(c *acquisition, nq *nodeQueue, done func(error)) {
	if nq.pendingCancel != nil {
		nq.pendingCancel.onCancelled = append(nq.pendingCancel.onCancelled, done)
		return
	}
	var q driver.AcquireRequest
	var vote driver.Vote
	d := &delivery{endsAcquisition: true, onCancelled: []func(error){done}}
	nq.pendingCancel = d
	d.begin = func() bool {
		if vote.Fence == 0 {
			q = c.AcquireRequest
			vote = driver.Vote{Ticket: c.ticket, Fence: s.clock.next(), RecoveryWindow: s.recoveryWindow}
		}
		q.Until = time.Now().Add(operationTimeout) // of this delivery
		return true
	}
	d.send = func() error {
		ctx, cancel := nodeContext(q.Until)
		defer cancel()
		return nq.node.CancelVote(ctx, q, vote)
	}
	d.end = func(err error) (notify func()) {
		nq.recordCancel(d.sentAt, q.Until, err)
		if errors.Is(err, driver.ErrUnavailable) && len(nq.pending) == 0 {
			nq.pendingCancel = d
		}
		all := d.onCancelled
		return func() {
			for _, done := range all {
				done(err)
			}
		}
	}
	s.enqueue(nq, s.longest, d)
}
