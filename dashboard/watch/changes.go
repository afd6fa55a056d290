package watch

import (
	"slices"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
)

// changes are the last changes found by polls.
type changes struct {
	gap     time.Duration // after a longer time between two polls, changes have no useful time
	watcher Watcher
	began   time.Time // when the watcher saw its first poll
	last    time.Time // when it saw the last poll
	kept    []view.Change

	revocations []view.Change // this program's revocations, also from older polls
}

const (
	maxKept   = 10_000 // changes to all names, and half as many before the oldest are dropped
	maxOfName = 50     // maximum number of changes returned for a name

	maxRevocations = 500
)

// add returns the changes since the poll before, and since when changes are seen.
func (c *changes) add(poll Poll) (found []view.Change, began time.Time) {
	if poll.Began.Sub(c.last) > c.gap {
		last := c.last
		c.watcher, c.began = Watcher{}, poll.Ended
		c.kept = slices.DeleteFunc(c.kept, func(one view.Change) bool { // a revocation was made here meanwhile
			return one.Event != view.EventRevoked || !one.Time.After(last)
		})
	}
	c.last = poll.Ended
	revoked := c.revokedSince(c.watcher.began)
	found = slices.DeleteFunc(c.watcher.Update(poll), func(one view.Change) bool { return isEndOf(one, revoked) })
	c.kept = append(c.kept, found...)
	if over := len(c.kept) - maxKept; over > maxKept/2 {
		c.kept = slices.Clone(c.kept[over:])
	}
	return found, c.began
}

// revoked adds a revocation by this program.
func (c *changes) revoked(one view.Change) {
	one.Event = view.EventRevoked
	one = stamped([]view.Change{one}, one.Time)[0]
	c.kept = append(c.kept, one)
	c.revocations = append(c.revocations, one)
	c.revocations = c.revocations[max(len(c.revocations)-maxRevocations, 0):]
}

// revokedSince returns the revocations after some time: there are few.
func (c *changes) revokedSince(at time.Time) []view.Change {
	at = at.Truncate(time.Millisecond) // like a change's time
	return slices.DeleteFunc(slices.Clone(c.revocations), func(one view.Change) bool { return one.Time.Before(at) })
}

// isEndOf reports whether a change is the end of a lease ended by one of some revocations.
func isEndOf(end view.Change, revoked []view.Change) bool {
	if end.Event != view.EventReleased && end.Event != view.EventExpired || end.Holder == nil {
		return false
	}
	return slices.ContainsFunc(revoked, func(one view.Change) bool {
		return one.Name == end.Name && one.Holder != nil &&
			one.Holder.Token == end.Holder.Token && (one.Holder.Fence == end.Holder.Fence || one.Holder.Fence == 0)
	})
}

// selected returns the last changes selected by a function, the newest first. most limits their
// number.
func selected(all []view.Change, most int, selects func(view.Change) bool) (found []view.Change) {
	for _, one := range slices.Backward(all) {
		if len(found) == most {
			break
		}
		if selects(one) {
			found = append(found, one)
		}
	}
	return found
}
