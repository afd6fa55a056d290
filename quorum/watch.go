package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/dibslock/dibs/driver"
)

// A watcher forwards the events of all nodes to one client.
type watcher struct {
	s      *Store
	notify func(driver.Event)

	mu         sync.Mutex
	up         []bool            // by node
	wasUp      []bool            // by node: it was up before
	majorityUp bool              // a majority is up
	hints      map[string][]bool // by hint: which nodes sent it, until all have
}

// Watch implements driver.Store. An event of a node is a vote or a hint. The client is
// connected while a majority of the nodes is.
func (s *Store) Watch(ctx context.Context, client string, on func(driver.Event)) error {
	n := len(s.nodes)
	w := &watcher{s: s, notify: on, up: make([]bool, n), wasUp: make([]bool, n), hints: make(map[string][]bool)}
	s.mu.Lock()
	s.watchers[client] = append(s.watchers[client], w)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		left := slices.DeleteFunc(slices.Clone(s.watchers[client]), func(o *watcher) bool { return o == w })
		if s.watchers[client] = left; len(left) == 0 {
			delete(s.watchers, client)
		}
	}()
	errs := make([]error, n)
	var group sync.WaitGroup
	for i, node := range s.nodes {
		group.Go(func() {
			errs[i] = node.Watch(ctx, client, func(e driver.Event) { w.handleEvent(i, e) })
			w.handleEvent(i, driver.Event{Kind: driver.EventDisconnected, Err: errs[i]})
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(errs...)
}

// handleEvent processes one event of a node.
func (w *watcher) handleEvent(node int, e driver.Event) {
	switch e.Kind {
	case driver.EventGranted:
		w.s.handleGrant(node, e)
	case driver.EventRetry:
		if w.reportedByMajority(node, e.Token) {
			w.notify(e)
		}
	case driver.EventRevoked:
		if w.reportedByMajority(node, fmt.Sprint(e.Fence, " ", e.Token)) {
			w.notify(e)
		}
	case driver.EventConnected, driver.EventDisconnected:
		w.handleConnection(node, e)
	default:
		w.notify(e)
	}
}

// handleGrant records a node's notification that it has granted the lock to a waiter.
func (s *Store) handleGrant(node int, e driver.Event) {
	s.mu.Lock()
	c := s.byToken[e.Token] // a multi-lock has one token for all names and acquires them one by one
	if c == nil || e.Ticket != c.ticket {
		s.mu.Unlock()
		return
	}
	s.clock.observe(e.Fence)
	s.recordStoreID(s.nodes[node], e.Node)
	c.queues[node].recordGrant(e.Fence, e.Node)
	notify := s.evaluate(c)
	s.mu.Unlock()
	notify()
}

// reportedByMajority records a node's hint, and reports whether this node completes a
// majority for it. Hints of a few nodes are dropped when there are too many: that costs
// latency only.
func (w *watcher) reportedByMajority(node int, hint string) bool {
	const kept = 1000
	w.mu.Lock()
	defer w.mu.Unlock()
	by := w.hints[hint]
	if by == nil {
		if len(w.hints) >= kept {
			clear(w.hints)
		}
		by = make([]bool, len(w.up))
		w.hints[hint] = by
	}
	if by[node] {
		return false
	}
	by[node] = true
	n := countTrue(by)
	if n == len(by) {
		delete(w.hints, hint)
	}
	return n == w.s.majority
}

// handleConnection records whether the connection to a node is up.
func (w *watcher) handleConnection(node int, e driver.Event) {
	w.mu.Lock()
	back := e.Kind == driver.EventConnected && w.wasUp[node]
	w.up[node] = e.Kind == driver.EventConnected
	w.wasUp[node] = w.wasUp[node] || w.up[node]
	before := w.majorityUp
	w.majorityUp = countTrue(w.up) >= w.s.majority
	now := w.majorityUp
	w.mu.Unlock()
	switch {
	case now != before:
		w.notify(e)
	case now && back: // the node may have lost queue entries
		w.notify(driver.Event{Kind: driver.EventFailover})
	}
}

func countTrue(set []bool) (n int) {
	for _, is := range set {
		if is {
			n++
		}
	}
	return n
}

// notifierOf returns a function that sends an event to all watchers of a client. The
// caller holds s.mu.
func (s *Store) notifierOf(client string, e driver.Event) func() {
	all := s.watchers[client]
	return func() {
		for _, w := range all {
			w.notify(e)
		}
	}
}
