package dashboard

import (
	"sync"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/dashboard/waitgraph"
	"github.com/dibslock/dibs/dashboard/watch"
)

// A frame is a snapshot with values computed from it, once for all requests.
type frame struct {
	snapshot *watch.Snapshot
	names    func() []view.Summary // all names, sorted
	counts   func() view.Counts    // counts over all names

	graph  waitgraph.Graph   // graph from the states
	cycles []waitgraph.Cycle // the graph's cycles to show

	fragments memo[fragmentKey, func() (*fragment, error)]
}

// A fragmentKey says which part of a frame a fragment shows.
type fragmentKey struct {
	query
	report *report
}

// maxFragments is how many fragments are kept for a frame. Others are rendered for each request.
const maxFragments = 256

func newFrame(s *watch.Snapshot) *frame {
	f := &frame{snapshot: s}
	f.names = sync.OnceValue(s.Names)
	f.counts = sync.OnceValue(func() view.Counts { return view.CountsOf(f.names()) })
	f.graph = waitgraph.Of(s.States)
	f.cycles = new(waitgraph.Suspects).Shown(f.graph)
	return f
}

// fragment returns render's result for a key, and calls it only once.
func (f *frame) fragment(key fragmentKey, render func() ([]byte, error)) (*fragment, error) {
	compute := func() (*fragment, error) {
		html, err := render()
		if err != nil {
			return nil, err
		}
		return newFragment(html), nil
	}
	return f.fragments.of(key, maxFragments, compute, sync.OnceValues[*fragment, error])()
}

// began returns when the poll began: earlier changes are part of the snapshot.
func (f *frame) began() time.Time { return f.snapshot.At.Add(-f.snapshot.Took) }

// sameStates reports whether two snapshots share their states: during an outage a snapshot repeats
// the states before it, which the page may not have shown.
func sameStates(a, b *watch.Snapshot) bool {
	return len(a.States) == len(b.States) && (len(a.States) == 0 || &a.States[0] == &b.States[0])
}

// frames keeps the newest snapshot's frame.
type frames struct {
	mu       sync.Mutex
	current  *frame
	suspects waitgraph.Suspects // from the frames that were current
}

// of returns a snapshot's frame.
func (f *frames) of(s *watch.Snapshot) *frame {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil && f.current.snapshot == s {
		return f.current
	}
	one := newFrame(s)
	if f.current != nil && f.current.snapshot.Number > s.Number {
		return one
	}
	if s.Err == nil {
		one.cycles = f.suspects.Shown(one.graph)
	} else if f.current != nil && sameStates(f.current.snapshot, s) {
		one.cycles = f.current.cycles
	}
	f.current = one
	return one
}
