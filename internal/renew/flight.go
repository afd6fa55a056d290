package renew

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
	"github.com/dibslock/dibs/internal/lease"
	"github.com/dibslock/dibs/internal/load"
)

// A flight is a batch of renewals in flight. The server executes it, however late, unless its
// connection is broken. So the batch is not repeated while its answer can still arrive: repeats
// would slow a slow server further. An answer to a later request distinguishes the two cases. If
// nothing is answered for a while, a few leases are sent again as a probe.
type flight[H Holder] struct {
	sent     time.Duration
	on       load.Sent
	leases   []H
	deadline time.Duration // the earliest
	reported bool          // hooks were notified about the missing answer
}

const (
	firstProbe   = 500 * time.Millisecond // without any answer; then flights are probed
	longestProbe = time.Second            // between two probes
	probeSize    = 8                      // leases
)

// A flights contains a client's awaited flights, in the order in which they were sent. The zero
// value is ready for use. It is safe for concurrent use.
type flights[H Holder] struct {
	mu       sync.Mutex
	list     []*flight[H]
	answered time.Duration // the last answer seen by probe
	probed   time.Duration // the last probe since then, or that answer
	pause    time.Duration // before the next probe; it doubles
	turn     turn
}

var errNoAnswer = &driver.UnavailableError{Op: "extend", Cause: errors.New("the store has not answered so far: it is slow, or cannot be reached")}

// A turn is how long goroutines in this process wait to run. It is measured before a probe is sent.
type turn struct {
	waited    time.Duration
	from      time.Duration // when it was measured
	measuring bool
}

func (fs *flights[H]) add(f *flight[H]) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.list = append(fs.list, f)
}

// remove removes an ended flight.
func (fs *flights[H]) remove(f *flight[H]) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if i := slices.Index(fs.list, f); i >= 0 {
		fs.list = slices.Delete(fs.list, i, i+1)
	}
}

// removeOvertaken removes and returns the flights with a broken connection: a later request was
// answered, and they took several times as long.
func (fs *flights[H]) removeOvertaken(now time.Duration, heard load.Heard) (broken []*flight[H]) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	patience := max(clock.Times(4, heard.Took), firstProbe/2)
	fs.list = slices.DeleteFunc(fs.list, func(f *flight[H]) bool {
		overtaken := f.sent < heard.Sent && now-f.sent > patience
		if overtaken {
			broken = append(broken, f)
		}
		return overtaken
	})
	return broken
}

// measured records that a goroutine has waited since a given time.
func (fs *flights[H]) measured(since, now time.Duration) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.turn = turn{waited: now - since, from: now}
}

// whyUnanswered returns why there is no answer so far.
func (fs *flights[H]) whyUnanswered() error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if late := load.TooLittleCPU(fs.turn.waited); late != nil {
		return &driver.UnavailableError{Op: "extend", Cause: late}
	}
	return errNoAnswer
}

// probe returns the flight with the earliest deadline if a few of its leases should be sent again,
// or nil. It returns a flight only after a period without any answer. The turn must be measured
// before each probe: probe reports when to begin.
func (fs *flights[H]) probe(now time.Duration, heard load.Heard) (f *flight[H], measure bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	switch {
	case fs.turn.measuring || fs.probeAt(heard) > now:
		return nil, false
	case fs.turn.from <= fs.probed:
		fs.turn.measuring = true
		return nil, true
	}
	fs.probed = now
	fs.pause = min(2*fs.pause, longestProbe)
	return fs.urgent(), false
}

// urgent returns the flight with the earliest deadline.
func (fs *flights[H]) urgent() *flight[H] {
	return slices.MinFunc(fs.list, func(a, b *flight[H]) int { return cmp.Compare(a.deadline, b.deadline) })
}

// probeAt returns when the next probe is to be sent.
func (fs *flights[H]) probeAt(heard load.Heard) time.Duration {
	if len(fs.list) == 0 {
		return clock.Never
	}
	if heard.At != fs.answered || fs.pause == 0 {
		fs.answered, fs.probed = heard.At, heard.At
		fs.pause = max(firstProbe, clock.Times(4, heard.Took))
	}
	pause := fs.pause
	if left := fs.urgent().deadline - fs.list[0].sent; left > 0 {
		pause = min(pause, max(left/3, lease.LeastRetry))
	}
	pause = max(pause, load.OwnDelay(fs.turn.waited))
	return max(fs.probed, fs.list[0].sent) + pause
}

// next returns when the next probe is to be sent.
func (fs *flights[H]) next(heard load.Heard) time.Duration {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.turn.measuring {
		return clock.Never
	}
	return fs.probeAt(heard)
}

// unreported returns the unanswered flights about which hooks were not notified.
func (fs *flights[H]) unreported(now time.Duration) (list []*flight[H]) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.list {
		if !f.reported && now-f.sent >= firstProbe {
			f.reported = true
			list = append(list, f)
		}
	}
	return list
}

// anyLate reports whether any flight may be overtaken.
func (fs *flights[H]) anyLate(now time.Duration) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.ContainsFunc(fs.list, func(f *flight[H]) bool { return now-f.sent > firstProbe/2 })
}
