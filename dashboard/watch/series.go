package watch

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
)

// A series contains the polls for a single glob.
type series struct {
	poller Poller
	list   lister
	known  []string        // names in the last successful poll
	shown  func() []string // names on display; nil: all names are read by each poll

	names []view.Summary // all names' summaries, if there are many; otherwise nil
	taken time.Time      // when they were counted
	due   time.Time      // when they are counted again
}

// A Rest describes a poll over many names, which contains only some states.
type Rest struct {
	Names []view.Summary // all names, sorted; those without a state are as they were counted
	Taken time.Time      // when they were counted
	Read  []string       // names read by the poll, sorted
}

const (
	// manyNames is the maximum number of names that a poll reads, unless all are wanted.
	manyNames = 4000

	// countShare is the pause until the names are counted again, in units of the last count's
	// duration.
	countShare = 49
)

func newSeries(p Poller, glob string, shown func() []string) *series {
	return &series{poller: p, list: lister{poller: p, glob: glob}, shown: shown}
}

func (s *series) next(ctx context.Context) Poll {
	poll := Poll{Began: time.Now()}
	if s.names == nil || !poll.Began.Before(s.due) {
		poll.States, poll.Err = s.readAll(ctx)
	}
	if poll.Err != nil && s.names != nil {
		// Those on display can be read, or readSome reports the error.
		s.due, poll.Err = time.Now().Add(countShare*time.Since(poll.Began)), nil
	}
	if poll.Err == nil && s.names != nil {
		poll.States, poll.Rest, poll.Err = s.readSome(ctx)
	}
	poll.Ended = time.Now()
	return poll
}

// readAll lists the names and reads their states. If they are many, it counts them instead.
func (s *series) readAll(ctx context.Context) ([]driver.State, error) {
	names, err := s.list.names(ctx)
	if err != nil {
		return nil, err
	}
	if s.shown != nil && len(names) > manyNames {
		return nil, s.count(ctx, names)
	}
	states, err := s.poller.states(ctx, slices.Concat(names, s.known))
	if err == nil {
		s.known, s.names = namesOf(states), nil
	}
	return states, err
}

// count reads many names' states, and keeps only their summaries.
func (s *series) count(ctx context.Context, names []string) error {
	began := time.Now()
	slices.Sort(names)
	var all []view.Summary
	for part := range slices.Chunk(slices.Compact(names), manyNames) {
		states, err := s.poller.states(ctx, part)
		if err != nil {
			return err
		}
		all = append(all, view.SummariesOf(states)...)
	}
	ended := time.Now()
	s.names, s.taken, s.due = all, ended, ended.Add(countShare*ended.Sub(began))
	s.known = nil
	return nil
}

// readSome reads the names with waiters and those on display, and updates their summaries.
func (s *series) readSome(ctx context.Context) ([]driver.State, *Rest, error) {
	read := s.shown()
	for _, n := range s.names {
		if n.Waiting > 0 && len(read) < manyNames {
			read = append(read, n.Name)
		}
	}
	slices.Sort(read)
	read = slices.Compact(read)
	states, err := s.poller.states(ctx, slices.Clone(read))
	if err != nil {
		return nil, nil, err
	}
	s.names = merged(s.names, read, view.SummariesOf(states))
	return states, &Rest{Names: s.names, Taken: s.taken, Read: read}, nil
}

// merged returns names with the new summaries for the names just read. All lists are sorted by
// name. The result is another list, because a poll keeps the old list.
func merged(names []view.Summary, read []string, now []view.Summary) []view.Summary {
	all := make([]view.Summary, 0, len(names)+len(now))
	for _, n := range names {
		for len(now) > 0 && now[0].Name < n.Name {
			all, now = append(all, now[0]), now[1:]
		}
		for len(read) > 0 && read[0] < n.Name {
			read = read[1:]
		}
		if len(read) == 0 || read[0] != n.Name {
			all = append(all, n)
		}
	}
	return append(all, now...)
}

// find returns the index of a name's state.
func find(states []driver.State, name string) (int, bool) {
	return slices.BinarySearchFunc(states, name, func(s driver.State, name string) int { return strings.Compare(s.Name, name) })
}
