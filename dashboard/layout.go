package dashboard

import (
	"fmt"

	"github.com/dibslock/dibs/internal/view"
	"github.com/dibslock/dibs/internal/waitgraph"
)

// A layout says in which column of a diagram a process is.
type layout struct {
	nodes   []int // indices of processes; those in cycles first
	level   []int // of each node: the column, counted from the right
	edges   []layoutEdge
	omitted int // processes that are not part of it
}

// A layoutEdge is all waits of one node for another.
type layoutEdge struct {
	from, to int // indices of nodes
	names    []string
	inCycle  bool
}

func (e layoutEdge) title() string {
	if more := len(e.names) - 1; more > 0 {
		return fmt.Sprintf("%s and %d more", view.Safe(e.names[0]), more)
	}
	return view.Safe(e.names[0])
}

func layoutOf(g waitgraph.Graph) (l layout) {
	node := make(map[int]int) // from the index of a process
	add := func(process int) {
		if _, known := node[process]; known {
			return
		}
		if len(l.nodes) == maxNodes {
			node[process] = -1
			l.omitted++
			return
		}
		node[process] = len(l.nodes)
		l.nodes = append(l.nodes, process)
	}
	for _, cycles := range []bool{true, false} {
		for _, w := range g.Waits {
			if w.InCycle == cycles {
				add(w.Waiter)
				add(w.Holder)
			}
		}
	}
	edge := make(map[[2]int]int)
	for _, w := range g.Waits {
		pair := [2]int{node[w.Waiter], node[w.Holder]}
		if pair[0] < 0 || pair[1] < 0 {
			continue
		}
		i, known := edge[pair]
		if !known {
			i = len(l.edges)
			edge[pair] = i
			l.edges = append(l.edges, layoutEdge{from: pair[0], to: pair[1]})
		}
		l.edges[i].names = append(l.edges[i].names, w.Name)
		l.edges[i].inCycle = l.edges[i].inCycle || w.InCycle
	}
	l.level = levels(len(l.nodes), l.edges)
	return l
}

// levels returns the least number of waits from each node to one that waits for nobody. Of
// nodes that have no such way, the first one counts as such.
func levels(nodes int, edges []layoutEdge) []int {
	waiters, waits := make([][]int, nodes), make([]bool, nodes)
	for _, e := range edges {
		if e.from != e.to {
			waiters[e.to] = append(waiters[e.to], e.from)
			waits[e.from] = true
		}
	}
	level := make([]int, nodes)
	for i := range level {
		level[i] = -1
	}
	visit := func(roots ...int) {
		for _, n := range roots {
			level[n] = 0
		}
		for len(roots) > 0 {
			n := roots[0]
			roots = roots[1:]
			for _, w := range waiters[n] {
				if level[w] < 0 {
					level[w] = level[n] + 1
					roots = append(roots, w)
				}
			}
		}
	}
	var ends []int
	for n := range nodes {
		if !waits[n] {
			ends = append(ends, n)
		}
	}
	visit(ends...)
	for n := range nodes {
		if level[n] < 0 {
			visit(n)
		}
	}
	return level
}
