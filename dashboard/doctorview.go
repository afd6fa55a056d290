package dashboard

import (
	"github.com/dibslock/dibs/dashboard/view"
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
		rows(l.Findings, findingNode),
	}
}

func findingNode(f view.Finding) g.Node {
	class := severityClass(f.Severity)
	text := func(s string) g.Node { return g.Text(view.Safe(s)) }
	return h.Section(h.Class("finding "+class), newline, lines(
		h.H2(h.Span(h.Class("badge "+class), g.Text(f.Severity)), text(" "+f.Subject),
			g.If(f.Node != "", g.Group{g.Text(" "), h.Small(g.Text("on "), isolated(text(f.Node)))})),
		h.Dl(h.Dt(g.Text("found")), h.Dd(text(f.What)), h.Dt(g.Text("so")), h.Dd(text(f.Consequence)), h.Dt(g.Text("do")), h.Dd(text(f.Remedy))),
	))
}
