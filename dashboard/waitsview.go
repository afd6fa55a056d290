package dashboard

import (
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/dashboard/waitgraph"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

func (v waitView) node() g.Node {
	return g.Group{
		rows(v.Cycles, v.cycle),
		g.Iff(v.Diagram != nil, func() g.Node { return v.Diagram.section() }),
		newline, v.table(),
	}
}

func (v waitView) table() g.Node {
	if len(v.Rows) == 0 {
		return empty("No process waits for another.")
	}
	partial := ""
	if v.Graph.Partial {
		partial = "There are more waits than are searched: cycles may be missing."
	}
	return section("All waits", "",
		table("stack", nil, heads("", "Process", "", "waits for", "", "held by", "", "Cycle"), rows(v.Rows, v.row)),
		newline, hint(v.More), newline, hint(partial))
}

func (v waitView) row(w waitgraph.Wait) g.Node {
	waiter, holder := v.Graph.Processes[w.Waiter], v.Graph.Processes[w.Holder]
	cycle := g.Text("–")
	if w.InCycle {
		cycle = h.B(h.Class("never"), g.Text("yes"))
	}
	return h.Tr(row(), g.If(w.InCycle, h.Class("cycle")),
		cell("who", "Process", linked(linkOf(waiter), processText(waiter))),
		cell("name", "waits for", linked(nameLink(w.Name), view.Safe(w.Name))),
		cell("who", "held by", linked(linkOf(holder), processText(holder))),
		cell("wide", "Cycle", cycle),
	)
}

func (v waitView) cycle(c waitgraph.Cycle) g.Node {
	const most = 50
	room, more := "", ""
	if !c.Sure {
		room = "Another holder may make room: the names are held by several. "
	}
	if omitted := len(c.Waits) - most; omitted > 0 {
		more = "and " + view.Plural(omitted, "more wait", "more waits")
	}
	return h.Section(h.Class("cycle "+cycleClass(c)), newline, lines(
		h.H2(g.Text(view.CycleTitle(c))),
		h.Ol(g.Map(c.Waits[:min(len(c.Waits), most)], v.step), g.If(more != "", h.Li(h.Class("hint"), g.Text(more)))),
		hint(room+"If one goroutine of each process does this, none goes on until a lease expires or a wait ends. Independent goroutines of one process go on."),
	))
}

// step is a wait in a cycle as a sentence.
func (v waitView) step(w waitgraph.Wait) g.Node {
	waiter, holder := v.Graph.Processes[w.Waiter], v.Graph.Processes[w.Holder]
	return h.Li(
		h.A(h.Href(linkOf(waiter)), isolated(g.Text(processText(waiter)))), g.Text(" waits for "),
		h.A(h.Class("name"), h.Href(nameLink(w.Name)), h.Title(view.Safe(w.Name)), isolated(g.Text(view.Safe(w.Name)))), g.Text(" of "),
		h.A(h.Href(linkOf(holder)), isolated(g.Text(processText(holder)))),
	)
}
