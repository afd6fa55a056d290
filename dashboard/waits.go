package dashboard

import (
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/dashboard/waitgraph"
)

// A waitView is which process waits for which.
type waitView struct {
	Graph   waitgraph.Graph
	Cycles  []waitgraph.Cycle // listed cycles
	Diagram *diagram          // nil if nobody waits
	Rows    []waitgraph.Wait  // listed waits
	More    string            // how many are not
}

func waitViewOf(f *frame) waitView {
	const most, mostCycles = 500, 20
	g := f.graph
	v := waitView{
		Graph: g, Diagram: diagramOf(g),
		Cycles: f.cycles[:min(len(f.cycles), mostCycles)], Rows: g.Waits[:min(len(g.Waits), most)],
	}
	if more := len(g.Waits) - most; more > 0 {
		v.More = view.Plural(more, "more wait is", "more waits are") + " not listed."
	}
	return v
}

// cycleClass returns a cycle's colour.
func cycleClass(c waitgraph.Cycle) string {
	if c.Sure {
		return "bad"
	}
	return "odd"
}
