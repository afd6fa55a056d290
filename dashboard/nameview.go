package dashboard

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

func (n nameView) node() g.Node {
	s := n.State
	word, what := strings.ReplaceAll(s.State, "_", " "), s.Description()
	if s.Foreign != nil {
		what = s.Foreign.Description()
	}
	return lines(
		h.P(h.Class("what"), h.Span(h.Class("badge "+word), g.Text(word)), g.Text(" This name "+what+".")),
		g.Iff(s.Foreign != nil, n.foreign),
		g.If(len(n.Holders) > 0, section("Holders", ofAll(len(n.Holders), s.Holding), n.holderTable())),
		g.If(len(s.Waiters) > 0, section("Waiters", ofAll(len(s.Waiters), s.Waiting), n.waiterTable())),
		g.If(len(n.Nodes) > 0, section("Nodes of the quorum", "", n.nodeTable())),
		n.eventList(),
	)
}

// section is a section with a heading, and a remark beside it.
func section(heading, remark string, children ...g.Node) g.Node {
	return h.Section(newline, lines(
		h.H2(g.Text(heading), g.If(remark != "", g.Group{g.Text(" "), h.Small(g.Text(remark))})),
		g.Group(children),
	))
}

func (n nameView) foreign() g.Node {
	f := n.State.Foreign
	pair := func(term string, description ...g.Node) g.Node {
		return g.Group{h.Dt(g.Text(term)), h.Dd(description...)}
	}
	return section("Not a lock of dibs", "",
		h.Dl(pair("Key", isolated(g.Text(view.Safe(f.Key)))), pair("Type", g.Text(view.Safe(f.Type))), pair("What it looks like", g.Text(view.Safe(f.Kind))), pair("TTL", g.Text(view.Brief(f.Left()))),
			pair("What to do", g.Map(strings.Split(f.Advice, "; "), func(text string) g.Node { return h.P(g.Text(view.Safe(text))) }))),
		newline,
		g.If(n.RevokeForeign != "", h.P(h.A(h.Class("action"), h.Data("key", "revoke-foreign"), h.Href(n.RevokeForeign), g.Text("End the foreign lock…")))),
	)
}

func (n nameView) holderTable() g.Node {
	columns := heads("", "Holder", "", "Kind", "n", "Weight", "n", "Held", "", "TTL", "n", "Fence")
	revocable := slices.ContainsFunc(n.Holders, func(r holderRow) bool { return r.Revoke != "" })
	if revocable {
		columns = append(columns, headCell(""))
	}
	return table("stack", nil, columns, rows(n.Holders, func(r holderRow) g.Node {
		return h.Tr(row(),
			h.Td(h.Class("who first"), linked(processOf(r.Host, r.PID), r.String())),
			textCell("kind", "Kind", orDash(r.Kind)),
			textCell("n", "Weight", weightText(r.Weight, r.Limit, r.Weight == 0)),
			textCell("n", "Held", orDash(r.Ago(n.At))),
			ttlCell(view.Brief(r.Left()), barOf(r.Left())),
			textCell("n fence", "Fence", orDash(fenceText(r.Fence, n.State.Foreign != nil))),
			g.If(revocable, h.Td(h.Class("do"), g.If(r.Revoke != "", h.A(h.Class("action"), h.Href(r.Revoke), g.Text("Revoke…"))))),
		)
	}))
}

func (n nameView) waiterTable() g.Node {
	columns := heads("n pos", "Position", "", "Waiter", "", "Kind", "n", "Weight", "n", "Waited")
	return table("stack", nil, columns, rows(n.State.Waiters, func(w view.Waiter) g.Node {
		return h.Tr(row(),
			textCell("n", "Position", strconv.Itoa(w.Position)),
			cell("who", "Waiter", linked(processOf(w.Host, w.PID), w.String())),
			textCell("kind", "Kind", orDash(w.Kind)),
			textCell("n", "Weight", weightText(w.Weight, w.Limit, w.Weight == 0)),
			textCell("n", "Waited", view.Brief(time.Duration(w.Waited)*time.Millisecond)),
		)
	}))
}

func (n nameView) nodeTable() g.Node {
	columns := heads("n pos", "Node", "", "Holder", "", "TTL", "n", "Waiters", "n", "Fence")
	return table("stack", nil, columns, rows(n.Nodes, func(r nodeRow) g.Node {
		number := textCell("n", "Node", strconv.Itoa(r.Node))
		if r.Err != "" {
			return h.Tr(number, h.Td(h.Class("err"), h.ColSpan("4"), h.Data("label", "Error"), g.Text(r.Err)))
		}
		return h.Tr(number,
			cell("who", "Holder", isolated(h.Title(r.Holder), g.Text(orDash(r.Holder)))),
			textCell("", "TTL", orDash(r.TTL)),
			textCell("n", "Waiters", strconv.Itoa(r.Wait)),
			textCell("n", "Fence", orDash(r.Fence)),
		)
	}))
}

func (n nameView) eventList() g.Node {
	return eventSection("Recent events", "", n.Since, heads("", "Time", "", "Event", "", "Who", "", ""), n.Events, eventRow.node)
}

// eventSection is a section with the events that polls have found since some time.
func eventSection[T any](heading, remark, since string, columns []g.Node, events []T, of func(T) g.Node) g.Node {
	if since != "" {
		since = ", since " + since
	}
	list := empty("None was seen.")
	if len(events) > 0 {
		list = table("stack events", nil, columns, rows(events, of))
	}
	return section(heading, remark, list, newline,
		hint("Found by polling"+since+". What is shorter than the time between two polls may be missing."))
}

func (e eventRow) node() g.Node { return e.line() }

// line is an event's line, with more cells and attributes after the event's text.
func (e eventRow) line(more ...g.Node) g.Node {
	return h.Tr(g.Attr(eventMark),
		cell("", "Time", h.Time(h.DateTime(e.AtFull), g.Text(e.At))),
		cell("", "Event", h.B(g.Text(e.Event))),
		g.Group(more),
		cell("who", "Who", cutOff(e.Who)),
		cell("more", "More", isolated(g.Text(e.More))),
	)
}
