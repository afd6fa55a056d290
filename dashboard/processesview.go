package dashboard

import (
	"fmt"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/dashboard/waitgraph"
	"github.com/dibslock/dibs/driver"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

func (l processList) node() g.Node {
	return g.Group{
		g.If(l.Only != "", h.P(h.Class("what"), g.Text("Only "), h.B(isolated(g.Text(l.Only))), g.Text(". "), h.A(h.Href(viewProcesses), g.Text("Show all")))),
		newline, hint(l.Part), newline,
		rows(l.Processes, l.process),
		l.Pages.node(),
		g.If(len(l.Processes) == 0, empty(l.Empty)),
	}
}

func (l processList) process(p waitgraph.Process) g.Node {
	return h.Section(h.Class("process"), row(), newline, lines(
		h.H2(h.A(h.Href(linkOf(p)), cutOff(processText(p))), g.Text(" "), h.Small(g.Text("client "), isolated(g.Text(view.Safe(p.ID))))),
		h.Div(h.Class("pair"), newline, lines(l.entries("holds", p.Holds), l.entries("waits for", p.Waits))),
	))
}

func (l processList) entries(verb string, all []waitgraph.Entry) g.Node {
	shown := all[:min(len(all), l.Entries)]
	more := len(all) - len(shown)
	return h.Div(h.H3(g.Text(fmt.Sprint(verb, " ", len(all)))), g.If(len(all) > 0, h.Ul(
		g.Map(shown, func(e waitgraph.Entry) g.Node { return h.Li(entryNode(e)) }),
		g.If(more > 0, h.Li(h.Class("hint"), g.Text(fmt.Sprintf("and %d more", more)))),
	)))
}

// entryNode is a lease, or a place in a wait queue, which has a position.
func entryNode(e waitgraph.Entry) g.Node {
	name, kind, reserved, more := view.Safe(e.Name), string(e.Kind), "", view.Brief(e.Remaining)
	exclusive := e.Weight == 0
	if e.Position > 0 {
		exclusive, more = e.Weight == e.Limit, fmt.Sprintf("%s, position %d", view.Brief(e.Waited), e.Position)
	}
	if e.Kind == driver.KindSemaphore && !exclusive {
		kind += " " + weightText(e.Weight, e.Limit, false)
	}
	if e.Reserved {
		reserved = " reserved"
	}
	return g.Group{
		h.A(h.Class("name"), h.Href(nameLink(e.Name)), h.Title(name), isolated(g.Text(name))), g.Text(" "),
		h.Span(g.Text(kind), g.If(e.Label != "", g.Group{g.Text(" ("), isolated(g.Text(view.Safe(e.Label))), g.Text(")")}), g.Text(reserved+" · "+more)),
	}
}
