package dashboard

import (
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

func (l eventLog) node() g.Node {
	since := ""
	if l.Since != "" {
		since = ", since " + l.Since
	}
	list := empty("None was seen.")
	if len(l.Events) > 0 {
		list = table("stack events", nil, heads("", "Time", "", "Event", "", "Name", "", "Who", "", ""), rows(l.Events, logRow.node))
	}
	return lines(
		g.If(len(l.Revocations) > 0, section("Revocations", "by this dashboard, since it was started",
			table("stack events", nil, heads("", "Time", "", "Name", "", "Holder", "", "By", "", "Reason"), rows(l.Revocations, revocationRow.node)))),
		section("All names", "the newest first", list,
			hint("Found by polling"+since+". What is shorter than the time between two polls may be missing.")),
	)
}

func (r logRow) node() g.Node {
	name := g.Text("–")
	if r.Name != "" {
		name = linked(r.Link, r.Name)
	}
	return h.Tr(g.Attr(eventMark), row(),
		cell("", "Time", h.Time(h.DateTime(r.AtFull), g.Text(r.At))),
		cell("", "Event", h.B(g.Text(r.Event))),
		cell("name", "Name", name),
		cell("who", "Who", cutOff(r.Who)),
		cell("more", "More", isolated(g.Text(r.More))),
	)
}

func (r revocationRow) node() g.Node {
	return h.Tr(g.Attr(eventMark), row(),
		textCell("wide", "Time", r.At),
		cell("name", "Name", linked(r.Link, r.Name)),
		cell("who", "Holder", cutOff(r.Holder)),
		cell("who", "By", cutOff(r.User)),
		cell("more", "Reason", isolated(g.Text(r.Reason))),
	)
}
