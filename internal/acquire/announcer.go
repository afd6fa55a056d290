package acquire

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/internal/work"
)

// A call that acquires its names group by group announces the later groups while it waits for an
// earlier group. Otherwise it could find dead waiters in each group in turn, and wait for each.
const (
	announceAfter = 250 * time.Millisecond // how long a call takes before: most calls are shorter
	announceEvery = heartbeat / 2          // so that losing an announcement does not matter
)

// An announcer contains a client's calls that acquire their names group by group. All share a timer
// and an announcement. The zero announcer is ready for use. It is safe for concurrent use.
type announcer struct {
	mu    sync.Mutex
	calls map[*Announcement]struct{}
	timer *time.Timer // nil if there is no call
}

// An Announcement lists names that a call will request later. A nil Announcement announces nothing.
// It is safe for concurrent use.
type Announcement struct {
	of     *Acquirer
	values context.Context // the store's client sees its values, such as a trace
	begin  time.Duration   // of the call
	later  [][]string      // groups of names; guarded by the announcer's lock
}

// Announce begins the announcement for a call that begins now. The caller must end it. values is
// the call's context.
func (a *Acquirer) Announce(values context.Context) *Announcement {
	return &Announcement{of: a, values: values, begin: a.Clock.Now()}
}

// Set sets the groups of names that the call will request later.
func (n *Announcement) Set(later [][]string) {
	if n == nil {
		return
	}
	a := &n.of.announcer
	a.mu.Lock()
	defer a.mu.Unlock()
	n.later = later
	if a.calls == nil {
		a.calls = make(map[*Announcement]struct{})
	}
	a.calls[n] = struct{}{}
	if a.timer == nil {
		a.timer = time.AfterFunc(announceAfter, n.of.announce)
	}
}

// End ends the announcement.
func (n *Announcement) End() {
	if n == nil {
		return
	}
	a := &n.of.announcer
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.calls, n)
}

// due returns the names to announce now, with the values from one of their calls, such as its
// trace. It sets the timer again if there are calls.
func (a *announcer) due(now time.Duration) (names []string, values context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.calls) == 0 {
		a.timer = nil
		return nil, nil
	}
	a.timer.Reset(announceEvery)
	for n := range a.calls {
		if now-n.begin >= announceAfter {
			names, values = append(names, slices.Concat(n.later...)...), n.values
		}
	}
	slices.Sort(names)
	return slices.Compact(names), values
}

func (a *Acquirer) announce() {
	names, values := a.announcer.due(a.Clock.Now())
	if len(names) == 0 {
		return
	}
	a.Work.Run(func(ctx context.Context) {
		within, cancel := context.WithTimeout(work.Detach(ctx, values), min(a.Timeout, announceEvery))
		defer cancel()
		a.Store.Announce(within, names)
	})
}
