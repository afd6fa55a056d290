package quorum

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/quorum/internal/core"
)

// A watcher forwards the events from all nodes to a client.
type watcher struct {
	s      *Store
	notify func(driver.Event)

	mu         sync.Mutex
	up         []bool            // by node
	wasUp      []bool            // by node: it was up before
	majorityUp bool              // a majority is up
	hints      map[string][]bool // by hint: which nodes sent it, until all have
	revoked    revocations
}

// watchers are all clients' watchers.
type watchers struct {
	mu       sync.Mutex
	byClient map[string][]*watcher
}

func (s *watchers) add(client string, w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byClient == nil {
		s.byClient = make(map[string][]*watcher)
	}
	s.byClient[client] = append(slices.Clone(s.byClient[client]), w)
}

func (s *watchers) remove(client string, w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(s.byClient[client]), func(o *watcher) bool { return o == w })
	if s.byClient[client] = left; len(left) == 0 {
		delete(s.byClient, client)
	}
}

// notify sends an event to all of a client's watchers.
func (s *watchers) notify(client string, e driver.Event) {
	s.mu.Lock()
	all := s.byClient[client]
	s.mu.Unlock()
	for _, w := range all {
		w.notify(e)
	}
}

// wantedOn records a node's reply that a request waits.
func (s *watchers) wantedOn(node int, r driver.WantedRequest) {
	s.mu.Lock()
	all := s.byClient[r.Client]
	s.mu.Unlock()
	for _, w := range all {
		w.handleWanted(node, r.Token)
	}
}

// Watch implements driver.Store. It watches all nodes. A node's EventGranted counts as its vote.
// Retry, wanted and revoked events reach the client after a majority of the nodes sent them.
// EventConnected means that a majority is connected, and EventDisconnected that no majority is.
func (s *Store) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	n := len(s.nodes.all)
	if n == 0 {
		return errZero
	}
	w := &watcher{s: s, notify: on, up: make([]bool, n), wasUp: make([]bool, n), hints: make(map[string][]bool), revoked: make(revocations)}
	s.watchers.add(client, w)
	defer s.watchers.remove(client, w)
	errs := make([]error, n)
	var group sync.WaitGroup
	for i, node := range s.nodes.all {
		group.Go(func() {
			errs[i] = node.Watch(ctx, client, busy, func(e driver.Event) { w.handleEvent(i, e) })
			w.handleEvent(i, driver.Event{Kind: driver.EventDisconnected, Err: errs[i]})
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(errs...)
}

// handleEvent processes a node's event.
func (w *watcher) handleEvent(node int, e driver.Event) {
	switch e.Kind {
	case driver.EventGranted:
		w.s.runner.step(func(m *core.Machine, now time.Time) core.Effects { return m.Granted(node, e, now) })
	case driver.EventRetry:
		if w.reportedByMajority(node, e.Token) {
			w.notify(e)
		}
	case driver.EventRevoked:
		w.handleRevoked(node, e)
	case driver.EventWanted:
		w.handleWanted(node, e.Token)
	case driver.EventConnected, driver.EventDisconnected:
		w.handleConnection(node, e)
	default:
		w.notify(e)
	}
}

// handleWanted notifies the client once a majority reported that a request waits.
func (w *watcher) handleWanted(node int, token string) {
	if w.reportedByMajority(node, "wanted "+token) {
		w.notify(driver.Event{Kind: driver.EventWanted, Token: token})
	}
}

// handleRevoked notifies the client once a majority reported that a lease was revoked.
func (w *watcher) handleRevoked(node int, e driver.Event) {
	w.mu.Lock()
	merged, complete := w.revoked.reported(node, len(w.up), w.s.config.Majority, e)
	w.mu.Unlock()
	if complete {
		w.notify(merged)
	}
}

// reportedByMajority records a node's hint, and reports whether this node completes a majority for
// it. A few nodes' hints are dropped when there are too many: this costs only latency.
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
	if by[node] && countTrue(by) < w.s.config.Majority {
		return false
	}
	if by[node] { // a new hint: the other nodes have not sent the last hint, for example while they are down
		clear(by)
	}
	by[node] = true
	n := countTrue(by)
	if n == len(by) {
		delete(w.hints, hint)
	}
	return n == w.s.config.Majority
}

// handleConnection records whether the connection to a node is up.
func (w *watcher) handleConnection(node int, e driver.Event) {
	w.mu.Lock()
	back := e.Kind == driver.EventConnected && w.wasUp[node]
	w.up[node] = e.Kind == driver.EventConnected
	w.wasUp[node] = w.wasUp[node] || w.up[node]
	before := w.majorityUp
	w.majorityUp = countTrue(w.up) >= w.s.config.Majority
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
