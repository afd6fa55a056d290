package watch

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
)

// A Hub polls the names that match a glob, once for all its followers, and only while there are
// any. All methods are safe for concurrent use.
type Hub struct {
	every  time.Duration
	series *series         // used by the polling goroutine
	onPoll func(*Snapshot) // called by this goroutine; nil: nothing

	mu        sync.Mutex
	followers int
	stop      context.CancelFunc // ends the polling goroutine
	stopped   chan struct{}      // closed when the last polling goroutine has ended; nil before the first
	current   *Snapshot          // nil before the first poll
	changed   chan struct{}      // closed when there is another snapshot
	awaited   chan struct{}      // closed when the poll that Await waits for ends; nil: none
	changes   changes
	displayed map[string]uint64 // names on display, with the number of the snapshot that shows them
}

// A Snapshot is a poll's result. It does not change.
type Snapshot struct {
	Number  uint64         // grows with each poll
	At      time.Time      // when the poll ended
	Took    time.Duration  // how long the poll took
	Err     error          // why the store did not answer; States are then from its last answer
	States  []driver.State // sorted by name, without free names
	Changes []view.Change  // since the poll before
	Began   time.Time      // since when changes are seen
	Rest    *Rest          // for many names; nil: States contains all names

	names func() []view.Summary // computes Names once; nil: for each call
}

// Names returns all names' summaries, sorted by name.
func (s *Snapshot) Names() []view.Summary {
	switch {
	case s.Rest != nil:
		return s.Rest.Names
	case s.names != nil:
		return s.names()
	}
	return view.SummariesOf(s.States)
}

// State returns a name's state, if it is in the snapshot.
func (s *Snapshot) State(name string) (driver.State, bool) {
	i, found := find(s.States, name)
	if !found {
		return driver.State{}, false
	}
	return s.States[i], true
}

// longestGap is the longest time between two polls for a comparison, unless every is longer.
const longestGap = 30 * time.Second

// NewHub returns a Hub that pauses for every between two polls. It calls onPoll with each new
// snapshot, before other users get it: never concurrently.
func NewHub(p Poller, glob string, every time.Duration, onPoll func(*Snapshot)) *Hub {
	h := &Hub{
		every: every, onPoll: onPoll, changed: make(chan struct{}), changes: changes{gap: max(longestGap, 3*every)},
		displayed: make(map[string]uint64),
	}
	h.series = newSeries(p, glob, h.onDisplay)
	return h
}

// Limits for the names read because they are on display: their number, and for how many polls after
// they were shown.
const (
	maxDisplayed   = 4000
	displayedPolls = 3
)

// Display says that a page shows these names from a snapshot. The next polls read them, even if
// there are many others.
func (h *Hub) Display(s *Snapshot, names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		if _, known := h.displayed[name]; known || len(h.displayed) < maxDisplayed {
			h.displayed[name] = s.Number
		}
	}
}

// onDisplay returns the names that pages show, and forgets names no longer shown.
func (h *Hub) onDisplay() (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, number := range h.displayed {
		if h.current != nil && number+displayedPolls < h.current.Number {
			delete(h.displayed, name)
			continue
		}
		names = append(names, name)
	}
	return names
}

// Latest returns the current snapshot, or a new poll's snapshot if nobody follows the Hub and the
// current snapshot is older than the pause between two polls. It returns an error if ctx ends
// before.
func (h *Hub) Latest(ctx context.Context) (*Snapshot, error) {
	for s := range h.Follow(ctx) {
		return s, nil
	}
	return nil, context.Cause(ctx)
}

// Await is like Latest. But if ctx ends before, it returns the last completed poll's snapshot, or
// nil. The poll does not end with ctx: the next call returns its result.
func (h *Hub) Await(ctx context.Context) *Snapshot {
	select {
	case <-h.pollToEnd():
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// pollToEnd follows the Hub until Latest returns, in a single goroutine for all calls, and returns
// a channel, which is then closed. The poll's timeouts limit this.
func (h *Hub) pollToEnd() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.awaited == nil {
		done := make(chan struct{})
		h.awaited = done
		go func() {
			_, _ = h.Latest(context.Background()) // an error comes from the context
			h.mu.Lock()
			defer h.mu.Unlock()
			h.awaited = nil
			close(done)
		}()
	}
	return h.awaited
}

// Follow yields the current snapshot, if it is not too old, and then each new snapshot until ctx
// ends. It skips snapshots replaced while the caller was busy.
func (h *Hub) Follow(ctx context.Context) iter.Seq[*Snapshot] {
	return func(yield func(*Snapshot) bool) {
		h.join()
		defer h.leave()
		var last uint64
		for ctx.Err() == nil {
			s, changed := h.next(last)
			if s != nil {
				if last = s.Number; !yield(s) {
					return
				}
				continue
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}
}

// next returns the current snapshot, unless it has the number last or is too old, and a channel
// that is closed when there is a new snapshot.
func (h *Hub) next(last uint64) (*Snapshot, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil || h.current.Number == last || last == 0 && time.Since(h.current.At) >= h.every {
		return nil, h.changed
	}
	return h.current, nil
}

// Recent returns the last changes seen for a name, the newest first.
func (h *Hub) Recent(name string) []view.Change {
	return h.Changes(maxOfName, func(one view.Change) bool { return one.Name == name })
}

// Changes returns the last changes selected by a function, the newest first. most limits their
// number.
func (h *Hub) Changes(most int, selects func(view.Change) bool) []view.Change {
	h.mu.Lock()
	defer h.mu.Unlock()
	return selected(h.changes.kept, most, selects)
}

// Revocations returns this program's last revocations, the newest first.
func (h *Hub) Revocations() []view.Change {
	h.mu.Lock()
	defer h.mu.Unlock()
	newest := slices.Clone(h.changes.revocations)
	slices.Reverse(newest)
	return newest
}

// Revoked adds a revocation to the changes. The next poll will find that its holder is gone, which
// is then not a release.
func (h *Hub) Revoked(one view.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes.revoked(one)
}

func (h *Hub) join() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.followers++; h.followers > 1 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	previous := h.stopped
	h.stop, h.stopped = cancel, make(chan struct{})
	go h.poll(ctx, previous, h.stopped)
}

func (h *Hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.followers--; h.followers == 0 {
		h.stop()
	}
}

// poll polls until ctx ends. It begins when the previous goroutine has ended, and keeps the usual
// pause after the last poll.
func (h *Hub) poll(ctx context.Context, previous <-chan struct{}, stopped chan<- struct{}) {
	defer close(stopped)
	if previous != nil {
		<-previous
	}
	idle := h.sinceLast()
	if idle < h.every {
		sleep(ctx, h.every-idle)
	}
	for ctx.Err() == nil {
		poll := h.series.next(ctx)
		if ctx.Err() != nil {
			return
		}
		h.publish(poll)
		sleep(ctx, h.every)
	}
}

func (h *Hub) sinceLast() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil {
		return h.every
	}
	return time.Since(h.current.At)
}

func (h *Hub) publish(poll Poll) {
	s := h.snapshotOf(poll)
	if h.onPoll != nil {
		h.onPoll(s)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.current = s
	close(h.changed)
	h.changed = make(chan struct{})
}

// snapshotOf returns the snapshot after the current snapshot.
func (h *Hub) snapshotOf(poll Poll) *Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &Snapshot{Number: 1, At: poll.Ended, Took: poll.Ended.Sub(poll.Began), Err: poll.Err, States: poll.States, Rest: poll.Rest}
	if h.current != nil {
		s.Number = h.current.Number + 1
		if poll.Err != nil {
			s.States, s.Rest = h.current.States, h.current.Rest
		}
	}
	s.names = sync.OnceValue(func() []view.Summary { return view.SummariesOf(s.States) })
	s.Changes, s.Began = h.changes.add(poll)
	return s
}
