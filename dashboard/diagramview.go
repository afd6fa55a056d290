package dashboard

import (
	"fmt"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

func (d *diagram) section() g.Node {
	return section("Who waits for whom", "",
		h.Div(h.Class("diagram"), h.Data("scroll", "diagram"), h.TabIndex("0"), h.Role("region"), h.Aria("label", "Diagram of the waits"), newline,
			d.svg(), newline),
		newline, hint(d.More))
}

func (d *diagram) svg() g.Node {
	return g.El("svg", g.Attr("xmlns", "http://www.w3.org/2000/svg"), number("width", d.Width), number("height", d.Height),
		g.Attr("viewBox", fmt.Sprintf("0 0 %d %d", d.Width, d.Height)), h.Role("img"),
		h.Aria("label", "Processes and what they wait for; the table below has the same"), newline,
		g.El("defs", arrowHead("arrow", ""), arrowHead("arrow-cycle", "cycle")), newline,
		rows(d.Edges, diagramEdge.node),
		rows(d.Nodes, diagramNode.node),
	)
}

func arrowHead(id, class string) g.Node {
	return g.El("marker", h.ID(id), g.If(class != "", h.Class(class)), g.Attr("viewBox", "0 0 8 8"), number("refX", 7), number("refY", 4),
		number("markerWidth", 8), number("markerHeight", 8), g.Attr("orient", "auto"),
		g.El("path", g.Attr("d", "M0 0L8 4L0 8z")))
}

func (e diagramEdge) node() g.Node {
	return g.El("g", h.Class(e.Class),
		g.El("title", g.Text(e.Title)),
		g.El("path", g.Attr("d", e.Path), g.Attr("marker-end", "url(#"+e.Marker+")")),
		g.If(e.Label != "", g.El("text", number("x", e.LabelX), number("y", e.LabelY), g.Attr("text-anchor", e.Anchor), g.Text(e.Label))))
}

func (n diagramNode) node() g.Node {
	return h.A(h.Href(n.Link), g.El("g", h.Class(n.Class),
		g.El("title", g.Text(n.Title)),
		g.If(n.Many, n.rect(4)), n.rect(0),
		g.El("text", number("x", n.TextX), number("y", n.TextY), g.Text(n.Text)),
		g.El("text", h.Class("small"), number("x", n.TextX), number("y", n.SmallY), g.Text(n.Detail))))
}

// rect is a node's box. If it stands for several processes, another box is behind it.
func (n diagramNode) rect(offset int) g.Node {
	return g.El("rect", number("x", n.X+offset), number("y", n.Y+offset), number("width", n.W), number("height", n.H), number("rx", 6))
}
