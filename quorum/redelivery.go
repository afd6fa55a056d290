package quorum

import "time"

// Operations that a node did not receive are kept and redelivered when the node is
// reachable again (hinted hand-off). Otherwise a released lock would block the other
// clients on that node until its TTL ends. With two such nodes of five, the failure of
// one more would stop the quorum.

// redeliverLater keeps a delivery until the node is reachable. The caller holds s.mu.
func (s *Store) redeliverLater(d *delivery) {
	const most = 10_000 // the rest end by their TTL
	n := d.queue.node
	if len(n.undelivered) == most {
		return
	}
	d.queue.undelivered++
	n.undelivered = append(n.undelivered, d)
	if !n.redelivering {
		n.redelivering = true
		go s.redeliver(n, d.queue.acquisition.jitter())
	}
}

// redeliver repeats the deliveries of a node: first one at a time, and once it answers,
// many at once.
func (s *Store) redeliver(n *node, jitter time.Duration) {
	const next, soon, later, batch = time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 64
	for pause, size := soon, 1; ; {
		time.Sleep(pause + jitter)
		due := s.due(n, size)
		if len(due) == 0 {
			return
		}
		if s.redeliverAll(due) {
			pause, size = next, batch
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
	for len(n.undelivered) > 0 && len(due) < size {
		d := n.undelivered[0]
		n.undelivered = n.undelivered[1:]
		if d.expired() {
			d.queue.undelivered--
			s.removeIfDone(d.queue.acquisition)
			continue
		}
		due = append(due, d)
	}
	n.redelivering = len(due) > 0
	return due
}

// redeliverAll reports whether the node answered all deliveries.
func (s *Store) redeliverAll(due []*delivery) bool {
	answers := make(chan bool, len(due))
	s.mu.Lock()
	for _, d := range due {
		d.onRedelivered = func(answered bool) { answers <- answered }
		d.queue.undelivered--
		s.insert(d)
	}
	s.mu.Unlock()
	all := true
	for range due {
		all = <-answers && all
	}
	return all
}
