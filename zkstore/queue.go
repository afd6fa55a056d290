package zkstore

import (
	"slices"
)

// An entry is a holder or a waiter.
type entry struct {
	node
	name string // of its znode
}

// A queue is the entries of a name, in their order.
type queue []entry

// readQueue returns the entries among the children of a name's znode. If a child is no entry,
// readQueue returns its name.
func readQueue(children []string) (q queue, strange string) {
	q = make(queue, 0, len(children))
	for _, name := range children {
		n, ok := parseNode(name)
		if !ok {
			strange = name
			continue
		}
		q = append(q, entry{n, name})
	}
	slices.SortFunc(q, func(a, b entry) int { return int(a.seq - b.seq) }) // also across an overflow
	return q, strange
}

// granted returns how many entries hold the name, or wait first for further names: the first
// entries whose weights fit. Entries join at the end, so a grant does not end when others join.
func (q queue) granted() int {
	held := 0
	for i, e := range q {
		switch {
		case i == 0:
		case e.exclusive() || q[0].exclusive() || held+e.weight > e.limit:
			return i
		}
		held += e.weight
	}
	return len(q)
}

// blockers returns entries before a waiter. While all of them exist, the waiter does not hold the
// name.
func (q queue) blockers(i int) queue {
	for j := i - 1; j >= 0; j-- {
		if q[i].exclusive() || q[j].exclusive() {
			return q[j : j+1]
		}
	}
	return q[:min(q.granted()+1, i)]
}

// findID returns the index of a token's entry, or -1.
func (q queue) findID(id string) int {
	return slices.IndexFunc(q, func(e entry) bool { return e.id == id })
}

// place returns the index of an entry, which may have moved, or -1.
func (q queue) place(of entry) int {
	return slices.IndexFunc(q, func(e entry) bool { return e.seq == of.seq && e.id == of.id })
}

// find returns the index of the entry with a znode's name, or -1.
func (q queue) find(name string) int {
	return slices.IndexFunc(q, func(e entry) bool { return e.name == name })
}
