package dashboard

import (
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

func (l findingList) node() g.Node {
	at := ""
	if l.At != "" {
		at = "Checked at " + l.At + ", at most once a minute."
	}
	return g.Group{
		lines(
			hint(at),
			g.If(l.Err != "", h.P(h.Class("note bad"), g.Text("The check failed: "+l.Err))),
			g.If(l.None != "", empty(l.None)),
		),
		rows(l.Findings, findingRow.node),
	}
}

func (f findingRow) node() g.Node {
	return h.Section(h.Class("finding "+f.Class), newline, lines(
		h.H2(h.Span(h.Class("badge "+f.Class), g.Text(f.Severity)), g.Text(" "+f.Subject),
			g.If(f.Node != "", g.Group{g.Text(" "), h.Small(g.Text("on "), isolated(g.Text(f.Node)))})),
		h.Dl(h.Dt(g.Text("found")), h.Dd(g.Text(f.What)), h.Dt(g.Text("so")), h.Dd(g.Text(f.Consequence)), h.Dt(g.Text("do")), h.Dd(g.Text(f.Remedy))),
	))
}
