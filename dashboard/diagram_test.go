package dashboard

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dibslock/dibs/internal/waitgraph"
)

// graphOf returns a graph of processes that wait for each other.
func graphOf(processes int, waits ...waitgraph.Wait) (g waitgraph.Graph) {
	for i := range processes {
		g.Processes = append(g.Processes, waitgraph.Process{Host: "web", PID: i + 1, ID: fmt.Sprint(i)})
	}
	for i := range waits {
		waits[i].Name = fmt.Sprintf("name:%d", i)
	}
	g.Waits = waits
	return g
}

func TestLayout(t *testing.T) {
	wait := func(waiter, holder int) waitgraph.Wait { return waitgraph.Wait{Waiter: waiter, Holder: holder} }
	cycle := func(waiter, holder int) waitgraph.Wait {
		return waitgraph.Wait{Waiter: waiter, Holder: holder, InCycle: true}
	}
	for what, c := range map[string]struct {
		graph  waitgraph.Graph
		nodes  []int
		levels []int
	}{
		"nothing":             {graphOf(3), nil, []int{}},
		"a queue":             {graphOf(3, wait(1, 0), wait(2, 0)), []int{1, 0, 2}, []int{1, 0, 1}},
		"a chain":             {graphOf(3, wait(0, 1), wait(1, 2)), []int{0, 1, 2}, []int{2, 1, 0}},
		"the shortest way":    {graphOf(3, wait(0, 1), wait(1, 2), wait(0, 2)), []int{0, 1, 2}, []int{1, 1, 0}},
		"a cycle":             {graphOf(2, cycle(0, 1), cycle(1, 0)), []int{0, 1}, []int{0, 1}},
		"a cycle of itself":   {graphOf(1, cycle(0, 0)), []int{0}, []int{0}},
		"the cycle first":     {graphOf(4, wait(3, 2), cycle(0, 1), cycle(1, 0)), []int{0, 1, 3, 2}, []int{0, 1, 1, 0}},
		"waits for the cycle": {graphOf(3, cycle(0, 1), cycle(1, 0), wait(2, 1)), []int{0, 1, 2}, []int{0, 1, 2}},
	} {
		l := layoutOf(c.graph)
		if !slices.Equal(l.nodes, c.nodes) || !slices.Equal(l.level, c.levels) {
			t.Errorf("%s: want %v %v, have %v %v", what, c.nodes, c.levels, l.nodes, l.level)
		}
	}
}

// Waits of one process for another are one arrow, and a large graph is drawn in part.
func TestLargeDiagram(t *testing.T) {
	var waits []waitgraph.Wait
	for i := 1; i < 100; i++ {
		waits = append(waits, waitgraph.Wait{Waiter: i, Holder: 0}, waitgraph.Wait{Waiter: i, Holder: 0})
	}
	d := diagramOf(graphOf(100, waits...))
	if len(d.Nodes) != maxNodes || len(d.Edges) != maxNodes-1 || d.More != "60 more processes are in the table only." {
		t.Errorf("%d nodes, %d edges, %s", len(d.Nodes), len(d.Edges), d.More)
	}
	if d.Edges[0].Title != "name:0 and 1 more" {
		t.Errorf("title %q", d.Edges[0].Title)
	}
	boxes := make(map[[2]int]bool)
	for _, n := range d.Nodes {
		boxes[[2]int{n.X, n.Y}] = true
		if n.X < 0 || n.Y < 0 || n.X+n.W > d.Width || n.Y+n.H > d.Height {
			t.Errorf("node %+v is outside of %d x %d", n, d.Width, d.Height)
		}
	}
	if len(boxes) != len(d.Nodes) {
		t.Errorf("%d nodes at %d places", len(d.Nodes), len(boxes))
	}
	if diagramOf(graphOf(3)) != nil {
		t.Error("a diagram without waits")
	}
}
