package quorum

import "time"

// A node's debts are the errands that it has not been told of, because it could not be
// reached. It is told when it can: else all others would wait there for what was given
// back long ago, until its TTL is over, and with two such nodes of five one more is one
// too many.

// owe keeps an errand until the node can be reached. The caller holds s.mu.
func (s *Store) deliverLater(e *delivery) {
	const most = 10_000 // more are ended by their TTL
	n := e.lane.node
	if len(n.debts) == most {
		return
	}
	e.lane.owed++
	n.debts = append(n.debts, e)
	if !n.paying {
		n.paying = true
		go s.redeliver(n, e.lane.claim.spread())
	}
}

// pay tells a node what it is owed: it tries one, and then many at once.
func (s *Store) redeliver(n *node, spread time.Duration) {
	const next, soon, later, lot = time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 64
	for pause, size := soon, 1; ; {
		time.Sleep(pause + spread)
		due := s.due(n, size)
		if len(due) == 0 {
			return
		}
		if s.redeliverAll(due) {
			pause, size = next, lot
		} else {
			pause, size = min(2*max(pause, soon), later), 1
		}
	}
}

// due takes a few debts of a node, and drops what has become needless. If there is none,
// nobody pays any more.
func (s *Store) due(n *node, size int) (due []*delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(n.debts) > 0 && len(due) < size {
		e := n.debts[0]
		n.debts = n.debts[1:]
		if e.void() {
			e.lane.owed--
			s.forget(e.lane.claim)
			continue
		}
		due = append(due, e)
	}
	n.paying = len(due) > 0
	return due
}

// payAll reports whether the node has answered to all.
func (s *Store) redeliverAll(due []*delivery) bool {
	answers := make(chan bool, len(due))
	s.mu.Lock()
	for _, e := range due {
		e.paid = func(answered bool) { answers <- answered }
		e.lane.owed--
		s.insert(e)
	}
	s.mu.Unlock()
	all := true
	for range due {
		all = <-answers && all
	}
	return all
}
