package watch

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
)

// A Watcher compares each poll's states with those from the previous poll. The zero value has seen
// no poll.
type Watcher struct {
	known map[string]view.State // with whole tokens; nil before the first successful poll
	began time.Time             // when the last successful poll began
	read  map[string]bool       // names read by the last successful poll; nil: all
	away  bool
}

// Update returns the changes since the poll before. Tokens are shortened.
func (w *Watcher) Update(p Poll) (news []view.Change) {
	if p.Err != nil {
		if !w.away {
			news = append(news, view.Change{Event: view.EventAway, Error: strings.TrimPrefix(p.Err.Error(), "dibs: ")})
		}
		w.away = true
		return stamped(news, p.Ended)
	}
	if w.away {
		news = append(news, view.Change{Event: view.EventBack})
	}
	seen := make(map[string]view.State, len(p.States))
	for _, s := range p.States {
		seen[s.Name] = view.StateWithTokens(s, p.Ended)
	}
	read := readBy(p)
	if read != nil { // the others may be held
		maps.DeleteFunc(w.known, func(name string, _ view.State) bool { return !read[name] })
	}
	for _, name := range slices.Sorted(maps.Keys(union(w.known, seen))) {
		first := w.known == nil || w.read != nil && !w.read[name]
		c := comparison{old: w.known[name], now: seen[name], at: p.Ended, passed: p.Ended.Sub(w.began), first: first}
		if _, held := seen[name]; held {
			c.carrySince()
			seen[name] = c.now
		}
		for _, one := range c.changes() {
			one.Name, one.Holding, one.Waiting = name, c.now.Holding, c.now.Waiting
			news = append(news, one)
		}
	}
	w.known, w.began, w.read, w.away = seen, p.Began, read, false
	return stamped(news, p.Ended)
}

// readBy returns the names read by a poll, or nil if it read all.
func readBy(p Poll) map[string]bool {
	if p.Rest == nil {
		return nil
	}
	read := make(map[string]bool, len(p.Rest.Read))
	for _, name := range p.Rest.Read {
		read[name] = true
	}
	return read
}

func union(a, b map[string]view.State) map[string]view.State {
	all := maps.Clone(b)
	maps.Copy(all, a)
	return all
}

func stamped(news []view.Change, at time.Time) []view.Change {
	for i := range news {
		news[i].Schema, news[i].Time = view.Schema, at.UTC().Truncate(time.Millisecond)
	}
	return news
}

// A comparison is about a single name in two polls.
type comparison struct {
	old, now view.State
	at       time.Time     // when the second poll was made
	passed   time.Duration // from the first poll's start to the second poll's end
	first    bool          // there was no earlier poll
}

// carrySince sets Since for holders whose fence is unknown: to the time of the poll that first saw
// them.
func (c *comparison) carrySince() {
	for i, h := range c.now.Holders {
		before := sameHolder(c.old.Holders, h)
		switch {
		case !h.Since.IsZero():
		case before != nil:
			c.now.Holders[i].Since = before.Since
		case !c.first:
			c.now.Holders[i].Since = c.at.UTC().Truncate(time.Millisecond)
		}
	}
}

// changes returns the changes. A name's lists are cut off if they are long. Without all holders
// only the counts are compared, and without all waiters there are no events for waiters who join or
// leave the queue.
func (c *comparison) changes() (news []view.Change) {
	if holdersCut(c.old) || holdersCut(c.now) {
		return c.countsChanged(c.old.Holding != c.now.Holding || c.old.Waiting != c.now.Waiting)
	}
	if waitersCut(c.old) || waitersCut(c.now) {
		return append(c.holderChanges(), c.countsChanged(c.old.Waiting != c.now.Waiting)...)
	}
	for _, w := range c.old.Waiters {
		if !present(c.now, w.Token) {
			news = append(news, c.waiterGone(w))
		}
	}
	news = append(news, c.holderChanges()...)
	for _, w := range c.now.Waiters {
		if !present(c.old, w.Token) {
			news = append(news, view.Change{Event: view.EventWaiting, Waiter: new(w.Shortened()), Waited: w.Waited})
		}
	}
	return news
}

// countsChanged returns an event without a holder or waiter, if there is a change.
func (c *comparison) countsChanged(changed bool) (news []view.Change) {
	if changed {
		news = append(news, view.Change{Event: view.EventChanged})
	}
	return news
}

func (c *comparison) holderChanges() (news []view.Change) {
	left := slices.DeleteFunc(slices.Clone(c.old.Holders), func(h view.Holder) bool { return sameHolder(c.now.Holders, h) != nil })
	for _, h := range left {
		news = append(news, c.holderLeft(h))
	}
	for _, h := range c.now.Holders {
		if sameHolder(c.old.Holders, h) == nil {
			news = append(news, c.holderCame(h, left))
		}
	}
	return news
}

func holdersCut(n view.State) bool { return n.Holding > len(n.Holders) }
func waitersCut(n view.State) bool { return n.Waiting > len(n.Waiters) }

// present reports whether a token is a holder or a waiter.
func present(n view.State, token string) bool {
	return slices.ContainsFunc(n.Holders, func(h view.Holder) bool { return h.Token == token }) ||
		slices.ContainsFunc(n.Waiters, func(w view.Waiter) bool { return w.Token == token })
}

// sameHolder returns the same holder in another poll, or nil. A lease and its reservation after the
// release are different holders.
func sameHolder(holders []view.Holder, wanted view.Holder) *view.Holder {
	i := slices.IndexFunc(holders, func(h view.Holder) bool { return h.Token == wanted.Token && h.Reserved == wanted.Reserved })
	if i < 0 {
		return nil
	}
	return &holders[i]
}

func (c *comparison) waiterGone(w view.Waiter) view.Change {
	return view.Change{Event: view.EventGone, Waiter: new(w.Shortened()), Waited: w.Waited + c.passed.Milliseconds()}
}

func (c *comparison) holderLeft(h view.Holder) view.Change {
	s := view.Change{Event: view.EventReleased, Holder: new(h.Shortened())}
	if h.Left() >= 0 && h.Left() <= c.passed {
		s.Event = view.EventExpired
	}
	if !h.Since.IsZero() {
		s.Held = max(c.at.Sub(h.Since), 0).Milliseconds()
	}
	return s
}

func (c *comparison) holderCame(h view.Holder, left []view.Holder) view.Change {
	s := view.Change{Event: view.EventAcquired, Holder: new(h.Shortened())}
	switch i := slices.IndexFunc(c.old.Waiters, func(w view.Waiter) bool { return w.Token == h.Token }); {
	case h.Reserved:
		s.Event = view.EventReserved
	case c.first:
		s.Event = view.EventHeld
	case i >= 0:
		s.Event, s.Waited = view.EventHandedOff, c.old.Waiters[i].Waited+c.until(h.Since).Milliseconds()
		if len(left) == 1 && len(c.now.Holders) == 1 {
			s.From = new(left[0].Shortened())
		}
	}
	return s
}

// until returns the time from the first poll to a lease's begin, which is in a server's time. For a
// lease without a known fence, the begin is the second poll's time.
func (c *comparison) until(since time.Time) time.Duration {
	began := c.at.Add(-c.passed).Truncate(time.Millisecond) // as since
	return min(max(since.Sub(began), 0), c.passed)
}
