package dashboard

import (
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// node returns a fragment's first part.
func (top head) node() g.Node {
	return g.Group{
		g.If(len(top.Counts) > 0 || top.At != "", h.Div(h.Class("counts"), newline, rows(top.Counts, count.node), top.time(), newline)),
		newline, rows(top.Warnings, warning.node),
	}
}

func (c count) node() g.Node {
	return h.Div(g.If(c.Zero, h.Class("zero")), h.Span(g.Text(c.Label)), g.Text(" "), h.B(g.Text(c.Value)))
}

func (top head) time() g.Node {
	return g.If(top.At != "", h.Div(h.Class("at"), h.Span(g.Text("as of")), g.Text(" "),
		h.Time(h.DateTime(top.AtFull), h.Title("The poll took "+top.Took), g.Text(top.At))))
}

func (w warning) node() g.Node {
	return h.P(h.Class("note "+w.Class), g.Map(w.Parts, part.node),
		g.If(w.Link != "", g.Group{g.Text(" "), h.A(h.Href(w.Link), g.Text(w.More))}))
}

func (p part) node() g.Node {
	if p.Name {
		return isolated(g.Text(p.Text))
	}
	return g.Text(p.Text)
}

// failure replaces a view that cannot be shown.
func failure(text string) g.Node {
	return h.P(h.Class("note bad"), g.Text("This part could not be shown: "+text))
}
