package dashboard

import (
	"fmt"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

func (l processList) node() g.Node {
	return g.Group{
		g.If(l.Only != "", h.P(h.Class("what"), g.Text("Only "), h.B(isolated(g.Text(l.Only))), g.Text(". "), h.A(h.Href(viewProcesses), g.Text("Show all")))),
		newline, hint(l.Part), newline,
		rows(l.Processes, processView.node),
		l.Pages.node(),
		g.If(len(l.Processes) == 0, empty(l.Empty)),
	}
}

func (p processView) node() g.Node {
	return h.Section(h.Class("process"), row(), newline, lines(
		h.H2(h.A(h.Href(p.Link), cutOff(p.Name)), g.Text(" "), h.Small(g.Text("client "), isolated(g.Text(p.ID)))),
		h.Div(h.Class("pair"), newline, lines(
			entryList("holds "+p.HoldsAll, p.Holds, p.HoldsMore),
			entryList("waits for "+p.WaitsAll, p.Waits, p.WaitsMore),
		)),
	))
}

func entryList(heading string, entries []entryRow, more int) g.Node {
	return h.Div(h.H3(g.Text(heading)), g.If(len(entries) > 0, h.Ul(
		g.Map(entries, func(e entryRow) g.Node { return h.Li(e.node()) }),
		g.If(more > 0, h.Li(h.Class("hint"), g.Text(fmt.Sprintf("and %d more", more)))),
	)))
}

func (e entryRow) node() g.Node {
	kind := e.Kind
	if e.Weight != "" {
		kind += " " + e.Weight
	}
	reserved := ""
	if e.Reserved {
		reserved = " reserved"
	}
	return g.Group{
		h.A(h.Class("name"), h.Href(e.Link), h.Title(e.Name), isolated(g.Text(e.Name))), g.Text(" "),
		h.Span(g.Text(kind), g.If(e.Label != "", g.Group{g.Text(" ("), isolated(g.Text(e.Label)), g.Text(")")}), g.Text(reserved+" · "+e.More)),
	}
}
