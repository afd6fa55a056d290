package dashboard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/dashboard/waitgraph"
)

// A diagram's limits: processes shown separately, columns before a chain becomes a single node, and
// nodes.
const (
	maxSingle  = 8
	maxColumns = 4
	maxNodes   = 24
)

// A layout says which part of a graph a diagram shows, and in which column.
type layout struct {
	nodes []layoutNode
	edges []layoutEdge
}

// A layoutNode is a process, or several processes shown as a single node.
type layoutNode struct {
	processes []int // indices in the graph
	inCycle   bool
	band      int // nodes in different bands do not wait for each other; the first band is on top
	level     int // the column within the band, counted from the right
}

// A layoutEdge stands for all waits by one node for another.
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

// layoutOf returns a graph's layout, and the number of omitted processes. If there are many
// processes, those with the same waits are a single node, such as a name's queue, and so is the
// middle of a long chain.
func layoutOf(g waitgraph.Graph) (l layout, omitted int) {
	l = layoutOfEach(g)
	all := len(l.nodes)
	if all > maxSingle {
		l = l.merged(l.alike())
	}
	if l.arrange(); l.columns() > maxColumns {
		l = l.merged(l.chains())
		l.arrange()
	}
	if len(l.nodes) > maxNodes {
		l = l.first(maxNodes)
		l.arrange()
	}
	shown := 0
	for _, n := range l.nodes {
		shown += len(n.processes)
	}
	return l, all - shown
}

// layoutOfEach contains a node for each process that waits, or is waited for: those in cycles
// first.
func layoutOfEach(g waitgraph.Graph) (l layout) {
	node := make(map[int]int) // from a process's index
	add := func(process int) {
		if _, known := node[process]; !known {
			node[process] = len(l.nodes)
			l.nodes = append(l.nodes, layoutNode{processes: []int{process}})
		}
	}
	for _, cycles := range []bool{true, false} {
		for _, w := range g.Waits {
			if w.InCycle == cycles {
				add(w.Waiter)
				add(w.Holder)
			}
		}
	}
	edges := newEdges()
	for _, w := range g.Waits {
		edges.add(layoutEdge{node[w.Waiter], node[w.Holder], []string{w.Name}, w.InCycle})
	}
	l.edges = edges.all
	l.markCycles()
	return l
}

// edges collects edges: those between the same nodes are joined.
type edges struct {
	all   []layoutEdge
	index map[[2]int]int
}

func newEdges() *edges { return &edges{index: make(map[[2]int]int)} }

func (s *edges) add(e layoutEdge) {
	i, known := s.index[[2]int{e.from, e.to}]
	if !known {
		s.index[[2]int{e.from, e.to}] = len(s.all)
		s.all = append(s.all, e)
		return
	}
	one := &s.all[i]
	one.inCycle = one.inCycle || e.inCycle
	if !slices.Equal(one.names, e.names) { // otherwise the edges between similar nodes
		one.names = append(one.names, e.names...)
	}
}

func (l layout) markCycles() {
	for _, e := range l.edges {
		if e.inCycle {
			l.nodes[e.from].inCycle, l.nodes[e.to].inCycle = true, true
		}
	}
}

// merged returns a layout with a single node for all nodes with the same class: a class is the
// index of a node in it.
func (l layout) merged(class []int) (m layout) {
	node := make(map[int]int) // from a class
	for i, n := range l.nodes {
		at, known := node[class[i]]
		if !known {
			at = len(m.nodes)
			node[class[i]] = at
			m.nodes = append(m.nodes, layoutNode{})
		}
		m.nodes[at].processes = append(m.nodes[at].processes, n.processes...)
	}
	edges := newEdges()
	for _, e := range l.edges {
		if e.from == e.to || class[e.from] != class[e.to] {
			edges.add(layoutEdge{node[class[e.from]], node[class[e.to]], slices.Clone(e.names), e.inCycle})
		}
	}
	m.edges = edges.all
	m.markCycles()
	return m
}

// alike returns classes of nodes that wait for the same names on the same nodes, and are waited for
// in the same way. Those in cycles stay apart.
func (l layout) alike() []int {
	keys := make([]strings.Builder, len(l.nodes)) // edges are in a fixed order, so equal edges make equal keys
	for _, e := range l.edges {
		fmt.Fprintf(&keys[e.from], "to %d %q,", e.to, e.names)
		fmt.Fprintf(&keys[e.to], "from %d %q,", e.from, e.names)
	}
	class, first := make([]int, len(l.nodes)), make(map[string]int)
	for i := range class {
		class[i] = i
		if l.nodes[i].inCycle {
			continue
		}
		key := keys[i].String()
		if one, known := first[key]; known {
			class[i] = one
		} else {
			first[key] = i
		}
	}
	return class
}

// chains returns classes in which a chain's inner nodes are joined: nodes that wait for a single
// node, with a single waiting node. The last inner node stays alone, because it waits for the node
// that delays them all.
func (l layout) chains() []int {
	const none = -1
	class, next, before := make([]int, len(l.nodes)), make([]int, len(l.nodes)), make([]int, len(l.nodes))
	out, in := make([]int, len(l.nodes)), make([]int, len(l.nodes))
	for i := range class {
		class[i], next[i], before[i] = i, none, none
	}
	for _, e := range l.edges {
		next[e.from], before[e.to] = e.to, e.from
		out[e.from]++
		in[e.to]++
	}
	inner := func(n int) bool { return out[n] == 1 && in[n] == 1 && next[n] != n }
	seen := make([]bool, len(l.nodes))
	for start := range class {
		if seen[start] || !inner(start) {
			continue
		}
		first := start
		for inner(before[first]) && before[first] != start {
			first = before[first]
		}
		var chain []int
		for n := first; inner(n) && !seen[n]; n = next[n] {
			seen[n] = true
			chain = append(chain, n)
		}
		if next[chain[len(chain)-1]] == first { // a cycle: its first node also stays alone
			chain = chain[1:]
		}
		for _, n := range chain[:len(chain)-1] {
			class[n] = chain[0]
		}
	}
	return class
}

// first returns at most this many nodes, in arrange's order. Nodes are added with the edge between
// them, the first nodes first: a single column's nodes would have no edges.
func (l layout) first(most int) layout {
	byNodes := slices.Clone(l.edges)
	slices.SortStableFunc(byNodes, func(a, b layoutEdge) int {
		return cmp.Or(cmp.Compare(max(a.from, a.to), max(b.from, b.to)), cmp.Compare(min(a.from, a.to), min(b.from, b.to)))
	})
	linked := make(map[int]bool)
	for _, e := range byNodes {
		added := map[int]bool{e.from: true, e.to: true}
		maps.DeleteFunc(added, func(n int, _ bool) bool { return linked[n] })
		if len(linked)+len(added) <= most {
			maps.Copy(linked, added)
		}
	}
	kept := layout{nodes: l.nodes}
	for _, e := range l.edges {
		if linked[e.from] && linked[e.to] {
			kept.edges = append(kept.edges, e)
		}
	}
	kept.reorder(slices.Sorted(maps.Keys(linked)))
	return kept
}

func (l layout) columns() int {
	most := 0
	for _, n := range l.nodes {
		most = max(most, n.level+1)
	}
	return most
}

// arrange sorts the nodes by bands, and within a band by columns. Bands with a cycle come first,
// then those with the longest chains, then those with the most processes.
func (l *layout) arrange() {
	level, band := levels(len(l.nodes), l.edges), bands(len(l.nodes), l.edges)
	type weight struct {
		cycle            bool
		depth, processes int
	}
	weights, order := make(map[int]weight), make([]int, len(l.nodes))
	for i := range l.nodes {
		n := &l.nodes[i]
		n.level, order[i] = level[i], i
		w := weights[band[i]]
		weights[band[i]] = weight{w.cycle || n.inCycle, max(w.depth, n.level), w.processes + len(n.processes)}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		v, w := weights[band[i]], weights[band[j]]
		return cmp.Or(
			firstTrue(v.cycle, w.cycle), cmp.Compare(w.depth, v.depth), cmp.Compare(w.processes, v.processes), cmp.Compare(band[i], band[j]),
			firstTrue(l.nodes[i].inCycle, l.nodes[j].inCycle), cmp.Compare(level[i], level[j]),
		)
	})
	number := make(map[int]int)
	for _, i := range order {
		if _, known := number[band[i]]; !known {
			number[band[i]] = len(number)
		}
		l.nodes[i].band = number[band[i]]
	}
	l.reorder(order)
}

// firstTrue compares two conditions: a true condition comes first.
func firstTrue(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// reorder sorts the nodes in an order given by their indices. Edges to nodes outside this order
// must not exist.
func (l *layout) reorder(order []int) {
	nodes, index := make([]layoutNode, len(order)), make(map[int]int, len(order))
	for at, i := range order {
		nodes[at], index[i] = l.nodes[i], at
	}
	for i := range l.edges {
		e := &l.edges[i]
		e.from, e.to = index[e.from], index[e.to]
	}
	l.nodes = nodes
}

// bands returns a number for each node: the same for those with edges between them, perhaps
// through others.
func bands(nodes int, edges []layoutEdge) []int {
	root := make([]int, nodes)
	for i := range root {
		root[i] = i
	}
	find := func(n int) int {
		for root[n] != n {
			root[n] = root[root[n]]
			n = root[n]
		}
		return n
	}
	for _, e := range edges {
		a, b := find(e.from), find(e.to)
		root[max(a, b)] = min(a, b)
	}
	for i := range root {
		root[i] = find(i)
	}
	return root
}

// levels returns the least number of waits from each node to a node without waits. Among nodes
// without such a way, the first counts as such.
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
