package dashboard

import (
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// The views are written with gomponents, which escapes each text and each attribute value. It does
// not check links: each link is made by a function in query.go or revoke.go, or is a constant.
// Names come from other programs, so never pass a part of a name to g.Raw.

// newline separates a fragment's lines. A row is a single line, because changes in a fragment are
// found by lines (delta.go).
var newline = g.Raw("\n")

// lines returns the nodes that are not nil, each on its own line.
func lines(nodes ...g.Node) g.Node {
	var all g.Group
	for _, n := range nodes {
		if n != nil {
			all = append(all, n, newline)
		}
	}
	return all
}

// rows returns a line for each element.
func rows[T any](all []T, of func(T) g.Node) g.Node {
	return g.Map(all, func(one T) g.Node { return g.Group{of(one), newline} })
}

// number is an attribute with a number.
func number(name string, n int) g.Node { return g.Attr(name, strconv.Itoa(n)) }

// row marks an element that the keys j and k go to.
func row() g.Node { return g.Attr("data-row") }

// isolated separates a name from the text around it, because it may be written from right to left.
func isolated(children ...g.Node) g.Node { return g.El("bdi", children...) }

// cutOff is a name that can be cut off on the screen: its title is whole.
func cutOff(text string) g.Node { return isolated(h.Title(text), g.Text(text)) }

// linked is a name with a link. The link is optional.
func linked(link, text string) g.Node {
	if link == "" {
		return cutOff(text)
	}
	return h.A(h.Href(link), h.Title(text), isolated(g.Text(text)))
}

// orDash returns the cell text for a value that may be missing.
func orDash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}

// hint is a paragraph in small text, or nothing.
func hint(text string) g.Node {
	return g.If(text != "", h.P(h.Class("hint"), g.Text(text)))
}

// empty is the text in place of a table without rows.
func empty(text string) g.Node { return h.P(h.Class("empty"), g.Text(text)) }

// table returns a table that becomes a list of blocks on a narrow screen. The body has a line for
// each row.
func table(class string, caption g.Node, heads []g.Node, body g.Node) g.Node {
	return h.Table(h.Class(class), newline,
		lines(caption, h.THead(h.Tr(heads...))),
		h.TBody(newline, body), newline)
}

// headCell is a column's head.
func headCell(class string, children ...g.Node) g.Node {
	return h.Th(h.Scope("col"), g.If(class != "", h.Class(class)), g.Group(children))
}

// heads are the columns' heads: pairs with a class and a text.
func heads(pairs ...string) (all []g.Node) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, headCell(pairs[i], g.If(pairs[i+1] != "", g.Text(pairs[i+1]))))
	}
	return all
}

// cell is a cell. On a narrow screen its column's label is beside it.
func cell(class, label string, children ...g.Node) g.Node {
	return h.Td(g.If(class != "", h.Class(class)), g.Attr("data-label", label), g.Group(children))
}

// textCell is a cell with a text.
func textCell(class, label, text string) g.Node { return cell(class, label, g.Text(text)) }

// ttlCell is the cell for a TTL, with a bar whose width is given.
func ttlCell(ttl string, width int) g.Node {
	switch ttl {
	case "never":
		return cell("ttl", "TTL", h.B(h.Class("never"), g.Text(ttl)))
	case "":
		return textCell("ttl", "TTL", "–")
	}
	return cell("ttl", "TTL", bar(width), g.Text(ttl))
}

func bar(width int) g.Node {
	const height, radius = 6, 2
	rect := func(width int, class g.Node) g.Node {
		return g.El("rect", class, number("width", width), number("height", height), number("rx", radius))
	}
	return g.El("svg", h.Class("bar"), g.Attr("viewBox", "0 0 40 6"), number("width", barWidth), number("height", height), h.Aria("hidden", "true"),
		rect(barWidth, h.Class("track")), rect(width, nil))
}

// node returns the links to the pages before and after this page, or nothing.
func (p pages) node() g.Node {
	if p.Count <= 1 {
		return nil
	}
	return h.Nav(h.Class("pages"), h.Aria("label", "Pages"), newline,
		g.If(p.Previous != "", h.A(h.Rel("prev"), h.Href(p.Previous), g.Text("Previous"))), newline,
		h.Span(g.Textf("%d–%d of %d", p.First, p.Last, p.All)), newline,
		g.If(p.Next != "", h.A(h.Rel("next"), h.Href(p.Next), g.Text("Next"))), newline)
}
