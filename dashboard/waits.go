package dashboard

import (
	"github.com/dibslock/dibs/internal/view"
	"github.com/dibslock/dibs/internal/waitgraph"
)

// A waitView is which process waits for which.
type waitView struct {
	Cycles  []cycleView
	Diagram *diagram // nil if nobody waits
	Rows    []waitRow
	More    string // how many rows are not listed
	Partial bool   // there are more waits
}

type cycleView struct {
	Title string
	Class string
	Sure  bool
	Steps []waitRow
	More  string
}

type waitRow struct {
	Waiter, WaiterLink string
	Name, Link         string
	Holder, HolderLink string
	InCycle            bool
}

func waitViewOf(f *frame) waitView {
	const most, mostCycles = 500, 20
	g := f.graph
	v := waitView{Diagram: diagramOf(g), Partial: g.Partial}
	cycles := f.cycles
	for _, c := range cycles[:min(len(cycles), mostCycles)] {
		v.Cycles = append(v.Cycles, cycleViewOf(g, c))
	}
	for _, w := range g.Waits[:min(len(g.Waits), most)] {
		v.Rows = append(v.Rows, waitRowOf(g, w))
	}
	if more := len(g.Waits) - most; more > 0 {
		v.More = view.Plural(more, "more wait is", "more waits are") + " not listed."
	}
	return v
}

func cycleViewOf(g waitgraph.Graph, c waitgraph.Cycle) cycleView {
	v := cycleView{Title: view.CycleTitle(c), Class: cycleClass(c), Sure: c.Sure}
	const most = 50
	for _, w := range c.Waits[:min(len(c.Waits), most)] {
		v.Steps = append(v.Steps, waitRowOf(g, w))
	}
	if more := len(c.Waits) - most; more > 0 {
		v.More = "and " + view.Plural(more, "more wait", "more waits")
	}
	return v
}

// cycleClass returns the colour of a cycle.
func cycleClass(c waitgraph.Cycle) string {
	if c.Sure {
		return "bad"
	}
	return "odd"
}

func waitRowOf(g waitgraph.Graph, w waitgraph.Wait) waitRow {
	waiter, holder := g.Processes[w.Waiter], g.Processes[w.Holder]
	return waitRow{
		Waiter: processText(waiter), WaiterLink: processLink(addressOf(waiter.Host, waiter.PID)),
		Name: view.Safe(w.Name), Link: nameLink(w.Name),
		Holder: processText(holder), HolderLink: processLink(addressOf(holder.Host, holder.PID)),
		InCycle: w.InCycle,
	}
}
