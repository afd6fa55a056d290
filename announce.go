package dibs

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A multi-lock that acquires its names group by group announces those of later groups while it
// waits for an earlier one. Otherwise it could find dead waiters in each group in turn, and
// wait for them in each.
const (
	announceAfter = 250 * time.Millisecond // how long a call takes before: most calls are shorter
	announceEvery = heartbeat / 2          // so that one lost announcement does not matter
)

// An announcer has the multi-locks of a client that are being acquired group by group. All
// share one timer, and one announcement. The zero announcer is ready for use. It is safe for
// concurrent use.
type announcer struct {
	mu    sync.Mutex
	calls map[*multiAcquire]announcement
	timer *time.Timer // nil if there is no call
}

type announcement struct {
	begin time.Duration // of the call
	later [][]string    // the groups that it requests later
}

// add sets which groups a call requests later. The timer calls fire.
func (a *announcer) add(g *multiAcquire, later [][]string, now time.Duration, fire func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.calls == nil {
		a.calls = make(map[*multiAcquire]announcement)
	}
	call, known := a.calls[g]
	if !known {
		call.begin = now
	}
	call.later = later
	a.calls[g] = call
	if a.timer == nil {
		a.timer = time.AfterFunc(announceAfter, fire)
	}
}

// remove removes a call that ends.
func (a *announcer) remove(g *multiAcquire) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.calls, g)
}

// due returns the names that are to be announced now, and sets the timer again if there are
// calls.
func (a *announcer) due(now time.Duration) (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.calls) == 0 {
		a.timer = nil
		return nil
	}
	a.timer.Reset(announceEvery)
	for _, call := range a.calls {
		if now-call.begin >= announceAfter {
			names = append(names, slices.Concat(call.later...)...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// announceLater has groups announced as long as a call takes that requests them later.
func (c *Client) announceLater(g *multiAcquire, later [][]string) {
	c.announcer.add(g, later, c.clock.now(), c.announce)
}

func (c *Client) announce() {
	names := c.announcer.due(c.clock.now())
	if len(names) == 0 {
		return
	}
	c.work.run(func(ctx context.Context) {
		within, cancel := context.WithTimeout(ctx, min(c.defaults.timeout, announceEvery))
		defer cancel()
		c.store.Announce(within, names)
	})
}
