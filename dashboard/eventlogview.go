package dashboard

import (
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

func (l eventLog) node() g.Node {
	return lines(
		g.If(len(l.Revocations) > 0, section("Revocations", "by this dashboard, since it was started",
			table("stack events", nil, heads("", "Time", "", "Name", "", "Holder", "", "By", "", "Reason"), rows(l.Revocations, revocationRow.node)))),
		eventSection("All names", "the newest first", l.Since, heads("", "Time", "", "Event", "", "Name", "", "Who", "", ""), l.Events, logRow.node),
	)
}

func (r logRow) node() g.Node {
	name := g.Text("–")
	if r.Name != "" {
		name = linked(r.Link, r.Name)
	}
	return r.line(row(), cell("name", "Name", name))
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
