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
	s  *Store
	on func(driver.Event)

	mu    sync.Mutex
	up    []bool            // by node
	was   []bool            // by node: it was up before
	flows bool              // a majority is up
	heard map[string][]bool // by hint: which nodes sent it, until all have
}

// Watch implements driver.Store. An event of a node is a vote or a hint. The client is
// connected while a majority of the nodes is.
func (s *Store) Watch(ctx context.Context, client string, on func(driver.Event)) error {
	n := len(s.nodes)
	w := &watcher{s: s, on: on, up: make([]bool, n), was: make([]bool, n), heard: make(map[string][]bool)}
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
			w.on(e)
		}
	case driver.EventRevoked:
		if w.reportedByMajority(node, fmt.Sprint(e.Fence, " ", e.Token)) {
			w.on(e)
		}
	case driver.EventConnected, driver.EventDisconnected:
		w.handleConnection(node, e)
	default:
		w.on(e)
	}
}

// handleGrant records a node's notification that it has granted the lock to a waiter.
func (s *Store) handleGrant(node int, e driver.Event) {
	s.mu.Lock()
	c := s.latest[e.Token] // a multi-lock has one token for all names and acquires them one by one
	if c == nil || e.Ticket != c.ticket {
		s.mu.Unlock()
		return
	}
	s.clock.saw(e.Fence)
	s.identify(s.nodes[node], e.Node)
	c.lanes[node].recordGrant(e.Fence, e.Node)
	tell := s.decideNow(c)
	s.mu.Unlock()
	tell()
}

// reportedByMajority records a node's hint, and reports whether this node completes a
// majority for it. Hints of a few nodes are dropped when there are too many: that costs
// latency only.
func (w *watcher) reportedByMajority(node int, hint string) bool {
	const kept = 1000
	w.mu.Lock()
	defer w.mu.Unlock()
	by := w.heard[hint]
	if by == nil {
		if len(w.heard) >= kept {
			clear(w.heard)
		}
		by = make([]bool, len(w.up))
		w.heard[hint] = by
	}
	if by[node] {
		return false
	}
	by[node] = true
	n := number(by)
	if n == len(by) {
		delete(w.heard, hint)
	}
	return n == w.s.need
}

// handleConnection records whether the connection to a node is up.
func (w *watcher) handleConnection(node int, e driver.Event) {
	w.mu.Lock()
	back := e.Kind == driver.EventConnected && w.was[node]
	w.up[node] = e.Kind == driver.EventConnected
	w.was[node] = w.was[node] || w.up[node]
	before := w.flows
	w.flows = number(w.up) >= w.s.need
	now := w.flows
	w.mu.Unlock()
	switch {
	case now != before:
		w.on(e)
	case now && back: // the node may have lost queue entries
		w.on(driver.Event{Kind: driver.EventFailover})
	}
}

func number(set []bool) (n int) {
	for _, is := range set {
		if is {
			n++
		}
	}
	return n
}

// notifierOf returns a function that sends an event to all watchers of a client. The
// caller holds s.mu.
func (s *Store) to(client string, e driver.Event) func() {
	all := s.watchers[client]
	return func() {
		for _, w := range all {
			w.on(e)
		}
	}
}
