package waitgraph

import (
	"cmp"
	"slices"
)

// markCycles finds the groups of processes that wait for each other, marks their waits, and adds a
// short cycle for each group. The sure cycles come first: a group may have one beside others.
func (b *builder) markCycles() {
	slices.SortStableFunc(b.Waits, func(x, y Wait) int { return cmp.Compare(x.Name, y.Name) })
	sure := b.groupsBy(func(w Wait) bool { return !b.permits[w.Name] })
	all := b.groupsBy(func(Wait) bool { return true })
	shown := make(map[int]bool) // groups over all waits
	for _, p := range sure.firsts(b.Waits) {
		b.Cycles = append(b.Cycles, b.shortest(p, sure))
		shown[all.group[p]] = true
	}
	for _, p := range all.firsts(b.Waits) {
		if !shown[all.group[p]] {
			b.Cycles = append(b.Cycles, b.shortest(p, all))
		}
	}
	for i := range b.Waits {
		w := &b.Waits[i]
		w.InCycle = all.inCycle(*w)
	}
}

// A grouping divides processes into groups by some waits.
type grouping struct {
	out   [][]int // indices of these waits, by waiter
	group []int   // each process's group
}

func (b *builder) groupsBy(counts func(Wait) bool) grouping {
	g := grouping{out: make([][]int, len(b.Processes))}
	for i, w := range b.Waits {
		if counts(w) {
			g.out[w.Waiter] = append(g.out[w.Waiter], i)
		}
	}
	g.group = groups(len(b.Processes), func(p int) []int {
		next := make([]int, len(g.out[p]))
		for i, w := range g.out[p] {
			next[i] = b.Waits[w].Holder
		}
		return next
	})
	return g
}

// inCycle reports whether a wait is part of a cycle.
func (g grouping) inCycle(w Wait) bool { return g.group[w.Waiter] == g.group[w.Holder] }

// firsts returns the first process in each group with a cycle.
func (g grouping) firsts(waits []Wait) (all []int) {
	seen := make(map[int]bool)
	for p, out := range g.out {
		if !seen[g.group[p]] && slices.ContainsFunc(out, func(w int) bool { return g.inCycle(waits[w]) }) {
			seen[g.group[p]] = true
			all = append(all, p)
		}
	}
	return all
}

// shortest returns a shortest cycle through a process that is part of a cycle.
func (b *builder) shortest(from int, g grouping) Cycle {
	by := map[int]int{} // the wait by which a process was reached
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		for _, i := range g.out[queue[0]] {
			w := b.Waits[i]
			if _, seen := by[w.Holder]; seen || !g.inCycle(w) {
				continue
			}
			if by[w.Holder] = i; w.Holder == from {
				return b.cycle(from, by)
			}
			queue = append(queue, w.Holder)
		}
	}
	return Cycle{} // not reached: each wait in a group is part of a cycle
}

// cycle collects the waits by which a process was reached from itself.
func (b *builder) cycle(from int, by map[int]int) Cycle {
	c := Cycle{Sure: true}
	for at := from; ; {
		w := b.Waits[by[at]]
		c.Waits = append(c.Waits, w)
		c.Sure = c.Sure && !b.permits[w.Name]
		if at = w.Waiter; at == from {
			slices.Reverse(c.Waits)
			return c
		}
	}
}

// groups returns for each of n nodes its strongly connected component's number, by Tarjan's
// algorithm, without recursion: a chain of waiters can be long.
func groups(n int, next func(node int) []int) []int {
	const unseen = -1
	group, index, low := make([]int, n), make([]int, n), make([]int, n)
	for i := range n {
		group[i], index[i] = unseen, unseen
	}
	type frame struct {
		node int
		todo []int
	}
	count, found := 0, 0
	var open []int // nodes without a group
	for start := range n {
		if index[start] != unseen {
			continue
		}
		var path []frame
		enter := func(node int) {
			index[node], low[node] = count, count
			count++
			open = append(open, node)
			path = append(path, frame{node, next(node)})
		}
		for enter(start); len(path) > 0; {
			top := &path[len(path)-1]
			node := top.node
			if len(top.todo) > 0 {
				to := top.todo[0]
				top.todo = top.todo[1:]
				switch {
				case index[to] == unseen:
					enter(to)
				case group[to] == unseen:
					low[node] = min(low[node], index[to])
				}
				continue
			}
			if path = path[:len(path)-1]; len(path) > 0 {
				before := path[len(path)-1].node
				low[before] = min(low[before], low[node])
			}
			if low[node] != index[node] {
				continue
			}
			for group[node] == unseen {
				last := len(open) - 1
				group[open[last]] = found
				open = open[:last]
			}
			found++
		}
	}
	return group
}
