package dashboard

import (
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

func (v waitView) node() g.Node {
	return g.Group{
		rows(v.Cycles, cycleView.node),
		g.Iff(v.Diagram != nil, func() g.Node { return v.Diagram.section() }),
		newline, v.table(),
	}
}

func (v waitView) table() g.Node {
	if len(v.Rows) == 0 {
		return empty("No process waits for another.")
	}
	partial := ""
	if v.Partial {
		partial = "There are more waits than are searched: cycles may be missing."
	}
	return section("All waits", "",
		table("stack", nil, heads("", "Process", "", "waits for", "", "held by", "", "Cycle"), rows(v.Rows, waitRow.node)),
		newline, hint(v.More), newline, hint(partial))
}

func (r waitRow) node() g.Node {
	cycle := g.Text("–")
	if r.InCycle {
		cycle = h.B(h.Class("never"), g.Text("yes"))
	}
	return h.Tr(row(), g.If(r.InCycle, h.Class("cycle")),
		cell("who", "Process", linked(r.WaiterLink, r.Waiter)),
		cell("name", "waits for", linked(r.Link, r.Name)),
		cell("who", "held by", linked(r.HolderLink, r.Holder)),
		cell("wide", "Cycle", cycle),
	)
}

func (c cycleView) node() g.Node {
	room := ""
	if !c.Sure {
		room = "Another holder may make room: the names are held by several. "
	}
	return h.Section(h.Class("cycle "+c.Class), newline, lines(
		h.H2(g.Text(c.Title)),
		h.Ol(g.Map(c.Steps, waitRow.step), g.If(c.More != "", h.Li(h.Class("hint"), g.Text(c.More)))),
		hint(room+"If one goroutine of each process does this, none goes on until a lease expires or a wait ends. Independent goroutines of one process go on."),
	))
}

// step is a wait of a cycle as a sentence.
func (r waitRow) step() g.Node {
	return h.Li(
		h.A(h.Href(r.WaiterLink), isolated(g.Text(r.Waiter))), g.Text(" waits for "),
		h.A(h.Class("name"), h.Href(r.Link), h.Title(r.Name), isolated(g.Text(r.Name))), g.Text(" of "),
		h.A(h.Href(r.HolderLink), isolated(g.Text(r.Holder))),
	)
}
