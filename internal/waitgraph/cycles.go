package waitgraph

import (
	"cmp"
	"slices"
)

// markCycles finds the groups of processes that wait for each other, marks their waits, and
// adds one short cycle of each group.
func (b *builder) markCycles() {
	slices.SortStableFunc(b.Waits, func(x, y Wait) int { return cmp.Compare(x.Name, y.Name) })
	out := make([][]int, len(b.Processes)) // indices of Waits, by waiter
	for i, w := range b.Waits {
		out[w.Waiter] = append(out[w.Waiter], i)
	}
	group := groups(len(b.Processes), func(p int) []int {
		next := make([]int, len(out[p]))
		for i, w := range out[p] {
			next[i] = b.Waits[w].Holder
		}
		return next
	})
	shown := make(map[int]bool)
	for i := range b.Waits {
		w := &b.Waits[i]
		w.InCycle = group[w.Waiter] == group[w.Holder]
	}
	for p := range b.Processes {
		if g := group[p]; !shown[g] && slices.ContainsFunc(out[p], func(w int) bool { return b.Waits[w].InCycle }) {
			shown[g] = true
			b.Cycles = append(b.Cycles, b.shortest(p, out))
		}
	}
}

// shortest returns a shortest cycle through a process that is part of one.
func (b *builder) shortest(from int, out [][]int) Cycle {
	by := map[int]int{} // the wait by which a process was reached
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		for _, i := range out[queue[0]] {
			w := b.Waits[i]
			if _, seen := by[w.Holder]; seen || !w.InCycle {
				continue
			}
			if by[w.Holder] = i; w.Holder == from {
				return b.cycle(from, by)
			}
			queue = append(queue, w.Holder)
		}
	}
	return Cycle{} // not reached: each wait of a group is part of a cycle
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

// groups returns for each of n nodes the number of its strongly connected component, by the
// algorithm of Tarjan, without recursion: a chain of waiters may be long.
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
	var open []int // nodes that have no group yet
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
