package quorum

import "time"

// Operations that a node did not receive are kept and redelivered when the node is
// reachable again (hinted hand-off). Otherwise a released lock would block the other
// clients on that node until its TTL ends. With two such nodes of five, the failure of
// one more would stop the quorum.

// redeliverLater keeps a delivery until the node is reachable. The caller holds s.mu.
func (s *Store) deliverLater(e *delivery) {
	const most = 10_000 // the rest end by their TTL
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

// redeliver repeats the deliveries of a node: first one at a time, and once it answers,
// many at once.
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

// due removes up to size deliveries of a node and drops expired ones. If none is left,
// redelivery for the node ends.
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

// redeliverAll reports whether the node answered all deliveries.
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
