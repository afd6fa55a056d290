package dashboard

import (
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// node returns the form that revokes a lease or ends a foreign lock.
func (f *revokeForm) node() g.Node {
	title, button := "Revoke the lease", "Revoke"
	if f.Foreign {
		title, button = "End the foreign lock", "End the lock"
	}
	return h.Section(h.ID("revoke"), h.Class("revoke"), h.Aria("labelledby", "revoke-title"), newline, lines(
		h.H2(h.ID("revoke-title"), g.Text(title)),
		f.effect(),
		h.Form(h.Method("post"), h.Action(f.Action), h.AutoComplete("off"), newline, lines(
			h.Input(h.Type("hidden"), h.Name("csrf"), h.Value(f.CSRF)),
			h.Label(h.For("typed"), g.Text("Type the name "), h.Code(h.Class("typed"), isolated(g.Text(f.Name)))),
			h.Input(h.ID("typed"), h.Name("typed"), h.Required(), h.AutoFocus(), number("maxlength", f.MaxTyped), g.Attr("autocapitalize", "off"), g.Attr("spellcheck", "false")),
			h.Label(h.For("reason"), g.Text("Reason, for the holder and the log")),
			h.Input(h.ID("reason"), h.Name("reason"), h.Required(), number("maxlength", f.MaxReason)),
			h.Div(h.Class("actions"), h.Button(h.Class("danger"), g.Text(button)), g.Text(" "), h.A(h.Href(f.Cancel), g.Text("Cancel"))),
		)),
	))
}

// effect describes the form's effect.
func (f *revokeForm) effect() g.Node {
	const next = "The first waiter then acquires the name. "
	warning := h.Strong(g.Text("The work of the holder may go on"))
	if f.Foreign {
		return h.P(
			g.Text("The key "), h.Code(isolated(g.Text(f.Key))), g.Text(" is deleted if it still holds this lock"),
			g.If(f.Holder != "", g.Group{g.Text(" of "), isolated(g.Text(f.Holder))}),
			g.Text(". "+next), warning, g.Text(" beside that of the next one."))
	}
	return h.P(
		g.Text("Ends the lease of "), isolated(g.Text(f.Holder)), g.Text(", fence "+f.Fence+", and no newer one. "+next),
		warning, g.Text(" beside that of the next one: only a check of the fence stops its writes."))
}
