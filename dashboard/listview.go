package dashboard

import (
	"strconv"

	"github.com/dibslock/dibs/dashboard/view"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

func (l listing) node() g.Node {
	if len(l.Rows) == 0 {
		return lines(sparkNodes(l.Last), empty(l.Empty))
	}
	return lines(sparkNodes(l.Last), table("stack list", h.Caption(g.Text(l.Shown)), l.heads(), rows(l.Rows, listRow.node)), l.Pages.node())
}

func (l listing) heads() []g.Node {
	sorting := func(class, by, text string) g.Node {
		head := l.Heads[by]
		return headCell(class, g.If(head.Current, h.Aria("sort", "other")), h.A(h.Href(head.Link), g.Text(text)))
	}
	return []g.Node{
		sorting("", "name", "Name"), headCell("", g.Text("Kind")), headCell("", g.Text("Holder")), sorting("n", "held", "Held"), sorting("", "ttl", "TTL"),
		sorting("n", "waiting", "Waiters"), sorting("n", "worst", "Oldest wait"), headCell("n fence", g.Text("Fence")),
	}
}

func (r listRow) node() g.Node {
	waiters := "n"
	if r.Wait > 0 {
		waiters = "n some"
	}
	return h.Tr(row(),
		h.Td(h.Class(r.Class), linked(r.Link, r.Name)),
		cell("kind", "Kind", isolated(g.Text(orDash(r.Kind)))),
		cell("who", "Holder", isolated(h.Title(r.Holder), g.Text(orDash(r.Holder)))),
		textCell("n", "Held", orDash(r.Held)),
		ttlCell(r.TTL, r.Bar),
		textCell(waiters, "Waiters", strconv.Itoa(r.Wait)),
		textCell("n", "Oldest wait", orDash(r.Longest)),
		textCell("n fence", "Fence", orDash(r.Fence)),
	)
}

// node returns the form above the list.
func (f *listFilter) node() g.Node {
	return h.Form(h.Class("filter"), h.Method("get"), h.Action("./"), h.Role("search"), newline, lines(
		field("glob", "Name", patternInput("glob", f.glob, "order:*")),
		field("host", "Host", patternInput("host", f.host, "web-7")),
		field("kind", "Kind", h.Select(h.ID("kind"), h.Name("kind"), option("", "any", f.kind),
			g.Map(view.Kinds(), func(kind string) g.Node { return option(kind, view.KindWord(kind), f.kind) }))),
		h.Label(h.Input(h.ID("waiters"), h.Type("checkbox"), h.Name("waiters"), h.Value("1"), g.If(f.waiters, h.Checked())), g.Text(" has waiters")),
		field("sort", "Sort by", h.Select(h.ID("sort"), h.Name("sort"),
			g.Map(view.Sortings(), func(s view.Sorting) g.Node { return option(s.By, s.By, f.Sort) }))),
		h.Button(g.Text("Show")),
		g.If(f.filter != filter{}, h.A(h.Href("./"), g.Text("Clear"))),
		h.Span(h.ID("glob-help"), h.Class("hint"), g.Text("a part of the name or host, or a pattern of the whole: "),
			h.Code(g.Text("*")), g.Text(" "), h.Code(g.Text("?")), g.Text(" "), h.Code(g.Text("[a-z]")), g.Text(", and "), h.Code(g.Text(`\`)), g.Text(" to quote")),
	))
}

// field is an input with its label, on a single line.
func field(id, label string, input g.Node) g.Node {
	return h.Div(h.Label(h.For(id), g.Text(label)), input)
}

func patternInput(id, value, example string) g.Node {
	return h.Input(h.ID(id), h.Name(id), h.Value(value), h.Placeholder(example), h.MaxLength("512"), h.AutoComplete("off"),
		g.Attr("autocapitalize", "off"), g.Attr("spellcheck", "false"), h.Aria("describedby", "glob-help"))
}

func option(value, text, current string) g.Node {
	return h.Option(h.Value(value), g.If(value == current, h.Selected()), g.Text(text))
}
