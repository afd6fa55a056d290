package dashboard

import (
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// node returns a whole page.
func (p page) node() g.Node {
	return h.Doctype(g.Group{newline, h.HTML(h.Lang("en"), newline,
		p.headNode(), newline,
		h.Body(newline, lines(
			h.A(h.Class("skip"), h.Href("#content"), g.Text("Skip to the content")),
			p.header(),
			p.main(),
		)),
		newline,
	)})
}

func (p page) headNode() g.Node {
	title := p.Heading + " – dibs"
	if p.Title != "" {
		title += " – " + p.Title
	}
	return h.Head(newline, lines(
		h.Meta(h.Charset("utf-8")),
		h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
		h.Meta(h.Name("color-scheme"), h.Content("light dark")),
		h.TitleEl(g.Text(title)),
		h.Link(h.Rel("stylesheet"), h.Href("static/page.css")),
		h.Link(h.Rel("icon"), h.Href("static/icon.svg"), h.Type("image/svg+xml")),
		h.Script(h.Src("static/page.js"), h.Defer()),
		g.If(p.Refresh > 0, h.NoScript(h.Meta(g.Attr("http-equiv", "refresh"), h.Content(strconv.Itoa(p.Refresh))))),
	))
}

func (p page) header() g.Node {
	return h.Header(newline, lines(
		h.Div(h.Class("brand"), h.A(h.Href("./"), g.Text("dibs")), g.If(p.Title != "", g.Group{g.Text(" "), cutOff(p.Title)})),
		h.Nav(h.Aria("label", "Views"), newline, lines(
			p.tab("./", "Locks", viewList, viewName),
			p.tab(viewProcesses, "Processes", viewProcesses),
			p.tab(viewWaits, "Waits", viewWaits),
			p.tab(viewEvents, "Events", viewEvents),
			g.If(p.Doctor, p.tab(viewDoctor, "Doctor", viewDoctor)),
		)),
		h.Div(h.Class("state"), newline, lines(
			g.If(!p.Allow, h.Span(h.Class("badge"), h.Title("Nothing can be revoked here"), g.Text("read-only"))),
			p.state(),
		)),
	))
}

// tab returns the link to a view. It is current on this view's page, and on the pages for the views
// below it.
func (p page) tab(link, text, view string, below ...string) g.Node {
	current := ""
	if p.View == view {
		current = "page"
	}
	for _, other := range below {
		if p.View == other {
			current = "true"
		}
	}
	return h.A(h.Href(link), g.If(current != "", h.Aria("current", current)), g.Text(text))
}

func (p page) state() g.Node {
	if p.Events == "" {
		return h.A(h.Href(p.Self), g.Text("Back"))
	}
	return g.Group{
		h.Span(h.ID("status"), h.Role("status"), h.Data("state", "static"), h.NoScript(g.Text("not live"))), newline,
		h.Button(h.ID("pause"), h.Type("button"), g.Attr("hidden"), g.Text("Pause")), newline,
		h.A(h.ID("refresh"), h.Href(p.Self), g.Text("Refresh")),
	}
}

func (p page) main() g.Node {
	heading := h.H1(g.Text(p.Heading))
	if p.View == viewName {
		heading = h.H1(h.Class("lock"), cutOff(p.Heading))
	}
	return h.Main(h.ID("content"), h.TabIndex("-1"), newline, lines(
		heading,
		rows(p.Notes, note.node),
		g.Iff(p.Filter != nil, func() g.Node { return p.Filter.node() }),
		g.Iff(p.Form != nil, func() g.Node { return p.Form.node() }),
		g.If(p.Events != "", h.Div(h.ID("live"), h.Data("events", p.Events), h.Data("fragment", p.Fragment), newline,
			g.Raw(p.Live), newline)),
	))
}

func (n note) node() g.Node {
	role := "status"
	if n.Class == "bad" {
		role = "alert"
	}
	return h.P(h.Class("note "+n.Class), h.Role(role), g.Text(n.Text))
}
