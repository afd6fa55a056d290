package quorum

import (
	"time"

	"github.com/dibslock/dibs"
)

// A claim is what a quorum knows of one token while questions about it are under way, or
// while it waits: what each node has said. Its fields are guarded by the Store's mutex.
type claim struct {
	dibs.Claim
	ticket   uint64  // its place in the queues
	lanes    []*lane // by node
	round    uint64  // the last Acquire: a vote counts if it was asked for since then
	open     bool    // wanted still
	try      bool    // its caller does not wait
	asking   bool    // Acquire has not returned yet
	won      bool    // it was told that it holds, in this round
	fence    uint64  // that most nodes must know before it holds, or zero
	offers   int     // how often it has offered what it holds to older ones, in this round
	offering bool    // it is about to, again
	offered  *time.Timer
	touched  time.Time
	changed  chan struct{} // tells Acquire to look again
}

// A lane is one node's side of a claim. What is sent down a lane goes one after another:
// a release that overtook an acquire would leave the node taken, and one that came late
// would free it for somebody else.
type lane struct {
	node *node
	busy bool
	next []func() // to be done after what is under way

	state state
	err   error     // of the last question, if it failed
	round uint64    // in which that was put
	fence uint64    // if held; if it waits, the largest that the node knew of
	id    string    // which store it is
	grant uint64    // the fence of a push that came while a question was under way
	by    string    // and which store sent it
	push  bool      // it is held by a push: for as long as a hand-off only
	doubt time.Time // until then what was sent may yet arrive, and take the vote away

	holder    string
	remaining time.Duration
	position  int
}

type state int

const (
	unknown state = iota
	held
	waits
)

// at returns the claim with a token, a new one if there is none. The caller holds s.mu.
func (s *Store) at(token string) *claim {
	c := s.claims[token]
	if c == nil {
		c = &claim{changed: make(chan struct{}, 1)}
		for _, n := range s.nodes {
			c.lanes = append(c.lanes, &lane{node: n})
		}
		s.sweep()
		s.claims[token] = c
	}
	c.touched = time.Now()
	return c
}

// sweep drops a few claims that nobody has touched for so long that their places in the
// queues are gone. The caller holds s.mu.
func (s *Store) sweep() {
	const forgotten = 2 * dibs.ClaimTTL
	looks := 2
	for token, c := range s.claims {
		if looks--; looks < 0 {
			return
		}
		if !c.busy() && time.Since(c.touched) > forgotten {
			c.settled()
			delete(s.claims, token)
		}
	}
}

func (c *claim) busy() bool {
	for _, l := range c.lanes {
		if l.busy {
			return true
		}
	}
	return false
}

// settled stops what goes on by itself.
func (c *claim) settled() {
	c.open = false
	if c.offered != nil {
		c.offered.Stop()
	}
}

// put sends something down a lane, after what is under way there. The caller holds s.mu.
func (s *Store) put(c *claim, l *lane, do func()) {
	if l.busy {
		l.next = append(l.next, do)
		return
	}
	l.busy = true
	go s.run(c, l, do)
}

func (s *Store) run(c *claim, l *lane, do func()) {
	for do != nil {
		do()
		s.mu.Lock()
		do = nil
		if len(l.next) > 0 {
			do, l.next = l.next[0], l.next[1:]
		} else {
			l.busy = false
			s.forget(c)
		}
		s.mu.Unlock()
	}
}

// forget drops a claim of which nothing has to be known any more. One that holds has to
// be known while it may still have a place in some queue. The caller holds s.mu.
func (s *Store) forget(c *claim) {
	if c.open || c.busy() || s.claims[c.Token] != c {
		return
	}
	for _, l := range c.lanes {
		if c.won && l.state != held || time.Now().Before(l.doubt) {
			return // until sweep
		}
	}
	delete(s.claims, c.Token)
}

// ask puts the question to a node. The caller holds s.mu.
func (s *Store) ask(c *claim, l *lane, yield bool) {
	round := c.round
	s.put(c, l, func() {
		s.mu.Lock()
		told := c.fence != 0 && l.state == held && l.round == round && l.fence >= c.fence
		if !c.open || c.round != round || told && !yield { // to ask again would raise the fence for ever
			s.mu.Unlock()
			return
		}
		q := c.Claim
		q.Ballot = &dibs.Ballot{Ticket: c.ticket, Fence: c.fence, Memory: s.memory, Yield: yield}
		if q.Ballot.Fence == 0 {
			q.Ballot.Fence = c.round
		}
		if !c.asking { // it is the quorum's own question: the client may be dead
			q.TTL, q.Until = q.HandoffTTL(), time.Now().Add(operation)
		}
		if yield {
			l.state, l.round = unknown, 0 // it may be giving the name away, whatever a push says
		}
		s.mu.Unlock()
		ctx, cancel := within(q.Until)
		answer, err := l.node.Acquire(ctx, q)
		cancel()
		if yield && err != nil {
			s.doubt(l, q.Until.Add(slack))
		}
		s.heard(c, l, answer, err, round)
	})
}

// slack is how much later than its Until a question may still be served.
const slack = 100 * time.Millisecond

// doubt has a node's votes not count until then.
func (s *Store) doubt(l *lane, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.doubt.Before(until) {
		l.doubt = until
	}
}

// heard notes a node's answer.
func (s *Store) heard(c *claim, l *lane, a dibs.Answer, err error, round uint64) {
	s.mu.Lock()
	l.round, l.err, l.push = round, err, false
	switch {
	case err != nil:
		l.state = unknown
	case a.Held:
		l.state, l.fence, l.id = held, a.Fence, a.Node
		s.clock.saw(a.Fence)
	default:
		l.state, l.fence, l.id = waits, a.Fence, a.Node
		l.holder, l.remaining, l.position = a.Holder, a.Remaining, a.Position
		l.granted(l.grant, l.by)
	}
	l.grant = 0
	tell := s.settle(c)
	s.mu.Unlock()
	tell()
}

// granted notes a push. It is true only if it is younger than the answer that said "not
// yet", which names the largest fence until then: one from a place that was lost since
// would be counted with a lease that has ended.
func (l *lane) granted(fence uint64, by string) {
	if l.busy {
		l.grant, l.by = fence, by
	}
	if l.state == waits && fence > l.fence {
		l.state, l.fence, l.id, l.push = held, fence, by, true
	}
}

// A count is how the nodes have voted, in this round.
type count struct {
	held    int // for the claim
	direct  int // of these in answer to a question, not by a push
	agreed  int // of these, that know its fence
	said    int // that have answered
	pending int // that may yet
	another int // for another claim, at most
}

// count counts the votes. A store that answers for two nodes has one.
func (c *claim) count() (n count) {
	voted := make(map[string]bool, len(c.lanes))
	others := make(map[string]int, 1)
	for _, l := range c.lanes {
		switch {
		case l.round != c.round:
			n.pending++
			continue
		case l.state == unknown, time.Now().Before(l.doubt):
			continue
		}
		if l.id != "" && voted[l.id] {
			continue
		}
		voted[l.id] = true
		n.said++
		if l.state == waits {
			others[l.holder]++
			n.another = max(n.another, others[l.holder])
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
	return n
}

// settle does what follows from the votes, and returns what to do without the mutex.
// The caller holds s.mu.
func (s *Store) settle(c *claim) (tell func()) {
	nothing := func() {}
	select {
	case c.changed <- struct{}{}:
	default:
	}
	if !c.open {
		return nothing
	}
	n := c.count()
	switch {
	case n.held >= s.need && !s.agree(c):
	case n.held >= s.need && !c.asking && !c.won:
		return s.grant(c)
	case n.held < s.need && n.pending == 0 && c.Queue && (c.try || n.held > 0 && n.another < s.need):
		s.offer(c)
	}
	return nothing
}

// grant tells the client of a claim that it holds, since its round began. The caller
// holds s.mu.
func (s *Store) grant(c *claim) (tell func()) {
	c.won = true
	c.settled()
	return s.to(c.Client, dibs.Event{Kind: dibs.Granted, Token: c.Token, Fence: c.fence, Ticket: c.ticket, Round: c.round})
}

// agree sees to it that most nodes know the fence of a claim that has most votes, so that
// the next one, who has the vote of one of them, has a larger one. In the usual case
// they have all taken the one that was proposed. The caller holds s.mu.
func (s *Store) agree(c *claim) bool {
	for _, l := range c.lanes {
		if l.state == held && l.round == c.round {
			c.fence = max(c.fence, l.fence)
		}
	}
	if c.count().agreed >= s.need {
		return true
	}
	for _, l := range c.lanes {
		if l.state == held && l.fence < c.fence && len(l.next) == 0 {
			s.ask(c, l, false)
		}
	}
	return false
}

// offer lets older claims have what this one holds, since nobody has the votes of most:
// each node knows whether one waits there. All nodes end with the oldest. The caller
// holds s.mu.
func (s *Store) offer(c *claim) {
	const first, most = 5 * time.Millisecond, 500 * time.Millisecond
	if c.offering {
		return
	}
	c.offers++
	if c.offers == 1 {
		s.offerNow(c)
		return
	}
	wait := min(first<<min(c.offers, 10), most)
	wait += time.Duration(c.ticket) % wait // not all at once
	round := c.round
	c.offering = true
	c.offered = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.open && c.round == round {
			c.offering = false
			s.offerNow(c)
		}
	})
}

func (s *Store) offerNow(c *claim) {
	for _, l := range c.lanes {
		if (l.state == held || c.try) && len(l.next) == 0 { // a try may have nobody who listens
			s.ask(c, l, true)
		}
	}
}

// giveUp undoes a claim everywhere, in the background. The caller holds s.mu.
func (s *Store) giveUp(c *claim) {
	c.settled()
	for _, l := range c.lanes {
		s.leave(c, l, func(error) {})
	}
}

// leave undoes a claim at one node. The caller holds s.mu.
func (s *Store) leave(c *claim, l *lane, done func(error)) {
	q := c.Claim
	q.Ballot = &dibs.Ballot{Ticket: c.ticket, Fence: s.clock.tick(), Memory: s.memory}
	s.put(c, l, func() {
		q.Until = time.Now().Add(operation)
		ctx, cancel := within(q.Until)
		defer cancel()
		err := l.node.Abandon(ctx, q)
		if err != nil {
			s.doubt(l, time.Now().Add(dibs.MaxTTL))
		}
		done(err)
	})
}
