package watch

import (
	"slices"
	"time"

	"github.com/dibslock/dibs/internal/view"
)

// changes are the last changes that polls have found.
type changes struct {
	gap     time.Duration // after a longer time between two polls, changes have no useful time
	watcher Watcher
	began   time.Time // when the watcher has seen its first poll
	last    time.Time // when it has seen the last one
	kept    []view.Change
}

const (
	maxKept   = 10_000 // changes of all names, and half as many before the oldest are dropped
	maxOfName = 50     // changes that are returned for a name
)

// add returns what has changed since the poll before, and since when changes are seen.
func (c *changes) add(poll Poll) (found []view.Change, began time.Time) {
	if poll.Began.Sub(c.last) > c.gap {
		last := c.last
		c.watcher, c.began = Watcher{}, poll.Ended
		c.kept = slices.DeleteFunc(c.kept, func(one view.Change) bool { // a revocation was made here meanwhile
			return one.Event != view.EventRevoked || !one.Time.After(last)
		})
	}
	c.last = poll.Ended
	found = slices.DeleteFunc(c.watcher.Update(poll), c.isRevocation)
	c.kept = append(c.kept, found...)
	if over := len(c.kept) - maxKept; over > maxKept/2 {
		c.kept = slices.Clone(c.kept[over:])
	}
	return found, c.began
}

// revoked adds a revocation that this program has made.
func (c *changes) revoked(one view.Change) {
	one.Event = view.EventRevoked
	c.kept = append(c.kept, stamped([]view.Change{one}, one.Time)...)
}

// isRevocation reports whether the end of a lease is that of a revocation in kept.
func (c *changes) isRevocation(end view.Change) bool {
	if end.Event != view.EventReleased && end.Event != view.EventExpired || end.Holder == nil {
		return false
	}
	return slices.ContainsFunc(c.kept, func(one view.Change) bool {
		return one.Event == view.EventRevoked && one.Name == end.Name && one.Holder != nil &&
			one.Holder.Token == end.Holder.Token && (one.Holder.Fence == end.Holder.Fence || one.Holder.Fence == 0)
	})
}

// of returns the last changes of a name, the newest first.
func (c *changes) of(name string) (found []view.Change) {
	for _, one := range slices.Backward(c.kept) {
		if one.Name != name {
			continue
		}
		if found = append(found, one); len(found) == maxOfName {
			break
		}
	}
	return found
}
