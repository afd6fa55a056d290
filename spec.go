package dibs

import (
	"slices"

	"github.com/dibslock/dibs/driver"
)

// A lockSpec describes a request: a single name, shared or exclusive, or several names, all
// exclusive.
type lockSpec struct {
	kind          Kind
	name          string
	with          []string
	groups        [][]string // for several names: the groups that the store acquires in one step, in its order; otherwise nil
	weight, limit int
}

// exclusive requests a name exclusively.
func exclusive(kind Kind, name string) lockSpec {
	return lockSpec{kind: kind, name: name, weight: 1, limit: 1}
}

// writer requests a name for writing.
func writer(name string) lockSpec {
	return lockSpec{kind: KindWriter, name: name, weight: driver.Unlimited, limit: driver.Unlimited}
}

// all requests several names exclusively, in a store's groups.
func all(groups [][]string) lockSpec {
	names := groups[0]
	if len(groups) > 1 {
		names = slices.Concat(groups...)
	}
	return lockSpec{kind: KindMulti, name: names[0], with: names[1:], groups: groups, weight: 1, limit: 1}
}

// names returns all names.
func (w *lockSpec) names() []string { return slices.Concat([]string{w.name}, w.with) }

// parts returns the number of requests the store needs.
func (w *lockSpec) parts() int { return max(len(w.groups), 1) }

// part returns a request's names.
func (w *lockSpec) part(i int) (name string, with []string) {
	if len(w.groups) == 0 {
		return w.name, w.with
	}
	return w.groups[i][0], w.groups[i][1:]
}
