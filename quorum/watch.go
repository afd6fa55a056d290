package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/dibslock/dibs/driver"
)

// A watcher is one client that listens to all nodes.
type watcher struct {
	s  *Store
	on func(driver.Event)

	mu    sync.Mutex
	up    []bool            // by node
	was   []bool            // it has been
	flows bool              // most are up
	heard map[string][]bool // by which nodes a hint has come, until most have said so
}

// Watch implements dibs.Store. What a node tells is a vote, or a hint: events flow while
// they do from most nodes.
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

// hear takes one event of a node.
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

// pushed notes that a node has handed on to a claim.
func (s *Store) handleGrant(node int, e driver.Event) {
	s.mu.Lock()
	c := s.latest[e.Token] // who wants several names has one token for all, and asks one by one
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

// most notes a hint of one node, and reports whether it is the one with which most have
// given it. What few nodes said is forgotten some day: it costs latency.
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

// turn notes that a node is heard, or not any more.
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
	case now && back: // it may have forgotten claims
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

// to returns what tells a client of an event. The caller holds s.mu.
func (s *Store) to(client string, e driver.Event) func() {
	all := s.watchers[client]
	return func() {
		for _, w := range all {
			w.on(e)
		}
	}
}
