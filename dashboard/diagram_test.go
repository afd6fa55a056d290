package dashboard

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/dibslock/dibs/dashboard/waitgraph"
)

// graphOf returns a graph with processes that wait for each other.
func graphOf(processes int, waits ...waitgraph.Wait) (g waitgraph.Graph) {
	for i := range processes {
		g.Processes = append(g.Processes, waitgraph.Process{Host: "web", PID: i, ID: fmt.Sprint(i)})
	}
	for i := range waits {
		if waits[i].Name == "" {
			waits[i].Name = fmt.Sprintf("name:%d", i)
		}
	}
	g.Waits = waits
	return g
}

func wait(waiter, holder int) waitgraph.Wait { return waitgraph.Wait{Waiter: waiter, Holder: holder} }

// chain returns the waits in a chain: each process from first to last waits for the next.
func chain(first, last int) (waits []waitgraph.Wait) {
	for i := first; i < last; i++ {
		waits = append(waits, wait(i, i+1))
	}
	return waits
}

// ring returns the waits in a cycle.
func ring(first, last int) []waitgraph.Wait {
	waits := append(chain(first, last), wait(last, first))
	for i := range waits {
		waits[i].InCycle = true
	}
	return waits
}

// star returns the waits by the processes first to last for another process's name.
func star(first, last, holder int) (waits []waitgraph.Wait) {
	for i := first; i <= last; i++ {
		waits = append(waits, waitgraph.Wait{Waiter: i, Holder: holder, Name: fmt.Sprint("queue:", holder)})
	}
	return waits
}

// pairs returns the waits by some processes for as many others.
func pairs(n int) (waits []waitgraph.Wait) {
	for i := range n {
		waits = append(waits, wait(2*i, 2*i+1))
	}
	return waits
}

// permits returns the waits for a semaphore: one process waits for n holders, and another waits for
// each holder.
func permits(n int) (waits []waitgraph.Wait) {
	for i := 1; i <= n; i++ {
		waits = append(waits, waitgraph.Wait{Waiter: 0, Holder: i, Name: "permits"}, wait(n+i, i))
	}
	return waits
}

// describe returns a layout's nodes as text: for each band its columns from the right.
func (l layout) describe() string {
	var bands [][]string
	for _, n := range l.nodes {
		for len(bands) <= n.band {
			bands = append(bands, nil)
		}
		b := &bands[n.band]
		for len(*b) <= n.level {
			*b = append(*b, "")
		}
		text := fmt.Sprint(n.processes[0])
		if many := len(n.processes); many > 1 {
			text = fmt.Sprintf("(%d)", many)
		}
		(*b)[n.level] = strings.TrimSpace((*b)[n.level] + " " + text)
	}
	var all []string
	for _, b := range bands {
		all = append(all, strings.Join(b, "|"))
	}
	return strings.Join(all, " / ")
}

func TestLayout(t *testing.T) {
	for what, c := range map[string]struct {
		waits   []waitgraph.Wait
		want    string
		omitted int
	}{
		"nothing":              {nil, "", 0},
		"a queue":              {star(1, 2, 0), "0|1 2", 0},
		"a chain":              {chain(0, 2), "2|1|0", 0},
		"the shortest way":     {append(chain(0, 2), wait(0, 2)), "2|0 1", 0},
		"a cycle":              {ring(0, 1), "0|1", 0},
		"a cycle of itself":    {[]waitgraph.Wait{{InCycle: true}}, "0", 0},
		"the cycle first":      {append([]waitgraph.Wait{wait(9, 8)}, ring(0, 1)...), "0|1 / 8|9", 0},
		"waits for the cycle":  {append(ring(0, 1), wait(2, 1)), "0|1|2", 0},
		"11 in a queue":        {star(1, 11, 0), "0|(11)", 0},
		"7 in a queue":         {star(1, 7, 0), "0|1 2 3 4 5 6 7", 0},
		"50 in a queue":        {star(1, 49, 0), "0|(49)", 0},
		"11 in a chain":        {chain(0, 10), "10|9|(8)|0", 0},
		"50 in a chain":        {chain(0, 49), "49|48|(47)|0", 0},
		"11 in a cycle":        {ring(0, 10), "0|(9)|1", 0},
		"50 in a cycle":        {ring(0, 49), "0|(48)|1", 0},
		"50 in two queues":     {append(star(2, 25, 0), star(26, 49, 1)...), "0|(24) / 1|(24)", 0},
		"a queue for a cycle":  {append(ring(0, 1), star(2, 49, 1)...), "0|1|(48)", 0},
		"a chain, and a cycle": {append(ring(0, 9), chain(10, 49)...), "0|(8)|1 / 49|48|(37)|10", 0},
		"50 in pairs":          {pairs(25), "1|0 / 3|2 / 5|4 / 7|6 / 9|8 / 11|10 / 13|12 / 15|14 / 17|16 / 19|18 / 21|20 / 23|22", 26},
		"24 permits":           {permits(24), "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23|0", 25},
		"the longest first":    {append(pairs(2), chain(4, 6)...), "6|5|4 / 1|0 / 3|2", 0},
	} {
		l, omitted := layoutOf(graphOf(50, c.waits...))
		if have := l.describe(); have != c.want || omitted != c.omitted {
			t.Errorf("%s: want %s and %d more, have %s and %d more", what, c.want, c.omitted, have, omitted)
		}
	}
}

// A large layout needs memory in proportion to its processes.
func TestMemoryOfALayout(t *testing.T) {
	g := graphOf(5000, star(1, 4999, 0)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	layoutOf(g)
	runtime.ReadMemStats(&after)
	if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 30 {
		t.Errorf("%d MB for 5000 processes", mb)
	}
}

// Several waits between two processes are a single arrow, and omitted processes are counted.
func TestLargeDiagram(t *testing.T) {
	var waits []waitgraph.Wait
	for i := 1; i < 100; i++ {
		waits = append(waits, wait(i, 0), wait(i, 0))
	}
	d := diagramOf(graphOf(100, waits...))
	if len(d.Nodes) != maxNodes || len(d.Edges) != maxNodes-1 || d.More != "76 more processes are in the table only." {
		t.Errorf("%d nodes, %d edges, %s", len(d.Nodes), len(d.Edges), d.More)
	}
	if d.Edges[0].Title != "name:0 and 1 more" {
		t.Errorf("title %q", d.Edges[0].Title)
	}
	if diagramOf(graphOf(3)) != nil {
		t.Error("a diagram without waits")
	}
}

// No text in a diagram overlaps another text, or a node.
func TestDiagramOverlaps(t *testing.T) {
	everyone := func(n int) (waits []waitgraph.Wait) { // n waiters for n holders' permits
		for i := range n {
			for j := range n {
				waits = append(waits, waitgraph.Wait{Waiter: i, Holder: n + j, Name: fmt.Sprint("permit:", i)})
			}
		}
		return waits
	}
	random := func(n, seed int) (waits []waitgraph.Wait) {
		for i := range 2 * n {
			seed = (seed*1103515245 + 12345) & 0x7fffffff
			waits = append(waits, waitgraph.Wait{Waiter: i % n, Holder: (seed >> 8) % n, InCycle: i%5 == 0})
		}
		return waits
	}
	for what, waits := range map[string][]waitgraph.Wait{
		"chain 11": chain(0, 10), "chain 50": chain(0, 49), "star 11": star(1, 10, 0), "star 50": star(1, 49, 0), "ring 5": ring(0, 4),
		"ring 11": ring(0, 10), "ring 50": ring(0, 49), "pairs": pairs(25), "permits 4": everyone(4), "permits 5": everyone(5), "permits 25": everyone(25),
		"two rings and a queue": append(append(ring(0, 1), ring(2, 6)...), star(7, 49, 3)...), "random 11": random(11, 1), "random 50": random(50, 2), "random 12": random(12, 3),
	} {
		d := diagramOf(graphOf(50, waits...))
		type rectangle struct {
			what                     string
			left, top, right, bottom int
		}
		var all []rectangle
		for _, n := range d.Nodes {
			all = append(all, rectangle{n.Text, n.X, n.Y, n.X + n.W, n.Y + n.H})
		}
		for _, e := range d.Edges {
			if e.Label == "" {
				continue
			}
			const width, above, below = labelWidth, 10, 3
			left := e.LabelX
			if e.Anchor == "end" {
				left -= width
			}
			all = append(all, rectangle{e.Label, left, e.LabelY - above, left + width, e.LabelY + below})
		}
		for i, a := range all {
			if a.left < 0 || a.top < 0 || a.right > d.Width || a.bottom > d.Height {
				t.Errorf("%s: %v is outside of %d x %d", what, a, d.Width, d.Height)
			}
			if at := slices.IndexFunc(all[:i], func(b rectangle) bool {
				return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
			}); at >= 0 {
				t.Errorf("%s: %v is on %v", what, a, all[at])
			}
		}
	}
}
