package dashboard

import (
	"sync"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/dashboard/waitgraph"
	"github.com/dibslock/dibs/dashboard/watch"
)

// A frame is a snapshot with what is computed from it, once for all who want it.
type frame struct {
	snapshot *watch.Snapshot
	names    func() []view.Summary // of all names, sorted by name
	counts   func() view.Counts    // of names

	graph  waitgraph.Graph   // of the states
	cycles []waitgraph.Cycle // of the graph: those that are shown

	fragments memo[fragmentKey, func() (*fragment, error)]
}

// A fragmentKey says what a fragment shows of a frame.
type fragmentKey struct {
	query
	report *report
}

// maxFragments is how many fragments of a frame are kept. Others are rendered for each
// request.
const maxFragments = 256

func newFrame(s *watch.Snapshot) *frame {
	f := &frame{snapshot: s}
	f.names = sync.OnceValue(s.Names)
	f.counts = sync.OnceValue(func() view.Counts { return view.CountsOf(f.names()) })
	f.graph = waitgraph.Of(s.States)
	f.cycles = new(waitgraph.Suspects).Shown(f.graph)
	return f
}

// fragment returns what render has returned for a key, and calls it once only.
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

// began returns when the poll began: what happened before is part of the snapshot.
func (f *frame) began() time.Time { return f.snapshot.At.Add(-f.snapshot.Took) }

// sameStates reports whether two snapshots share their states: one of an outage has those of the
// snapshot before, which the page may not have shown.
func sameStates(a, b *watch.Snapshot) bool {
	return len(a.States) == len(b.States) && (len(a.States) == 0 || &a.States[0] == &b.States[0])
}

// frames keeps the frame of the newest snapshot.
type frames struct {
	mu       sync.Mutex
	current  *frame
	suspects waitgraph.Suspects // of the frames that were current
}

// of returns the frame of a snapshot.
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
