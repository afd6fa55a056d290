package dibs

import (
	"slices"

	"github.com/dibslock/dibs/driver"
)

// A lockSpec is what a call requests: one name, shared or exclusive, or several names,
// all exclusive.
type lockSpec struct {
	kind          Kind
	name          string
	with          []string
	groups        [][]string // of several names, those that the store acquires in one step, in its order; nil for one name
	weight, limit int
}

// exclusive requests one name exclusively.
func exclusive(kind Kind, name string) lockSpec {
	return lockSpec{kind: kind, name: name, weight: 1, limit: 1}
}

// writer requests one name for writing.
func writer(name string) lockSpec {
	return lockSpec{kind: KindWriter, name: name, weight: driver.Unlimited, limit: driver.Unlimited}
}

// all requests several names, each exclusively, in the groups of a store.
func all(groups [][]string) lockSpec {
	names := groups[0]
	if len(groups) > 1 {
		names = slices.Concat(groups...)
	}
	return lockSpec{kind: KindMulti, name: names[0], with: names[1:], groups: groups, weight: 1, limit: 1}
}

// names returns all names.
func (w *lockSpec) names() []string { return slices.Concat([]string{w.name}, w.with) }

// parts returns how many requests the store needs.
func (w *lockSpec) parts() int { return max(len(w.groups), 1) }

// part returns the names of one of these requests.
func (w *lockSpec) part(i int) (name string, with []string) {
	if len(w.groups) == 0 {
		return w.name, w.with
	}
	return w.groups[i][0], w.groups[i][1:]
}
