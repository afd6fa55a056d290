package dashboard

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
	g "maragu.dev/gomponents"
)

// A page is everything around a fragment.
type page struct {
	Title    string // the dashboard's title
	Heading  string // the page's heading
	View     string
	Allow    bool
	Self     string // link to the page itself
	Events   string // link to its events; empty: the page is not live
	Fragment string // link to its fragment
	Live     string // the fragment, as HTML
	Filter   *listFilter
	Notes    []note
	Form     *revokeForm
	Refresh  int // seconds until a browser without JavaScript loads the page again; 0: never
	Doctor   bool
}

type listFilter struct {
	filter
	Sort string
}

// A note is a message about the request.
type note struct{ Class, Text string }

// page returns the handler for a view's page.
func (h *handler) page(wanted string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, err := h.parseQuery(r, wanted)
		var filter filterError
		if err != nil && !errors.As(err, &filter) {
			h.refuse(w, r, "", err)
			return
		}
		p, status := h.pageOf(q), http.StatusOK
		if filter.error != nil {
			p.Filter.filter, status = filter.typed, http.StatusBadRequest
			p.Notes = append(p.Notes, note{"bad", "The filter is not used: " + view.Safe(view.ErrorText(err)) + "."})
		}
		if err := h.fill(w, r, q, &p); err != nil {
			h.refuse(w, r, "", err)
			return
		}
		h.write(w, status, p)
	}
}

func (h *handler) pageOf(q query) page {
	const refresh = 10
	p := page{
		Title: view.Safe(h.config.Title), View: q.view, Allow: q.allow, Self: q.link(),
		Events: q.live("events"), Fragment: q.live("fragment"), Refresh: refresh, Doctor: h.config.Doctor != nil,
	}
	switch q.view {
	case viewList:
		p.Heading = "Locks"
		p.Filter = &listFilter{filter: q.filter, Sort: q.sort}
	case viewName:
		p.Heading = view.Safe(q.name)
	case viewProcesses:
		p.Heading = "Processes"
	case viewWaits:
		p.Heading = "Waits"
	case viewEvents:
		p.Heading = "Events"
	case viewDoctor:
		p.Heading = "Doctor"
	}
	return p
}

// fill adds the data read from the store.
func (h *handler) fill(w http.ResponseWriter, r *http.Request, q query, p *page) (err error) {
	f := h.latest(r.Context())
	var live *fragment
	switch q.view {
	case viewName:
		return h.fillName(w, r, q, f, p)
	case viewDoctor:
		ctx, cancel := context.WithTimeout(r.Context(), firstPoll)
		defer cancel()
		live, err = h.rendered(ctx, f, q, h.runs.wait(ctx))
	default:
		live, err = h.rendered(r.Context(), f, q, h.runs.latest())
	}
	if err != nil {
		return err
	}
	p.Live = string(live.html)
	return nil
}

// fillName adds a name's current state, which is newer than the frame: it can follow a revocation.
func (h *handler) fillName(w http.ResponseWriter, r *http.Request, q query, f *frame, p *page) error {
	at := time.Now()
	state, err := h.inspect(r.Context(), q.name)
	if err != nil {
		p.Notes = append(p.Notes, note{"bad", "The store does not answer: " + view.Safe(view.ErrorText(err)) + "."})
		state, err = h.nameState(r.Context(), f, q.name)
	}
	if err != nil {
		return nil // the note contains the reason
	}
	live, err := h.renderName(f, q, state, time.Now(), h.runs.latest())
	if err != nil {
		return err
	}
	p.Live = string(live)
	p.Events += "&after=" + strconv.FormatInt(at.UnixMilli(), 10)
	p.Notes = append(p.Notes, h.doneNotes(q.name, r.URL.Query().Get("done"))...)
	mark := r.URL.Query().Get("revoke")
	if mark == "" {
		return nil
	}
	t, found := h.find(state, mark)
	switch {
	case !q.allow:
		p.Notes = append(p.Notes, note{"odd", "This dashboard is read-only for you."})
	case !found:
		p.Notes = append(p.Notes, note{"odd", "That lease has ended."})
	default:
		p.Form = h.revokeFormOf(t, mark, h.secrets.session(w, r), at)
		p.Refresh = 0 // it would clear the typed text
	}
	return nil
}

// rendered returns a query's fragment, which is rendered once for a frame.
func (h *handler) rendered(ctx context.Context, f *frame, q query, r *report) (*fragment, error) {
	return f.fragment(fragmentKey{q, r}, func() ([]byte, error) { return h.render(ctx, f, q, r) })
}

func (h *handler) render(ctx context.Context, f *frame, q query, r *report) ([]byte, error) {
	switch q.view {
	case viewList:
		l, err := h.listingOf(ctx, f, q)
		if err != nil {
			return nil, err
		}
		return fragmentOf(headOf(f, r, q.view), l.node())
	case viewName:
		state, err := h.nameState(ctx, f, q.name)
		if err != nil {
			return nil, err
		}
		return h.renderName(f, q, state, f.snapshot.At, r)
	case viewProcesses:
		return fragmentOf(headOf(f, r, q.view), processListOf(f, q).node())
	case viewWaits:
		return fragmentOf(headOf(f, r, q.view), waitViewOf(f).node())
	case viewEvents:
		return fragmentOf(headOf(f, r, q.view), h.eventLogOf(f).node())
	}
	return fragmentOf(headOf(f, r, q.view), h.findingsOf(f, r).node())
}

func (h *handler) renderName(f *frame, q query, state driver.State, at time.Time, r *report) ([]byte, error) {
	return fragmentOf(headOf(f, r, q.view), h.nameViewOf(f, q, state, at).node())
}

// fragmentOf renders a fragment's head and the part below it.
func fragmentOf(top head, below g.Node) ([]byte, error) {
	var out bytes.Buffer
	err := g.Group{top.node(), below}.Render(&out)
	return out.Bytes(), err
}

// write sends a page. It renders the whole page first: an answer with half a page has no status.
func (h *handler) write(w http.ResponseWriter, status int, p page) {
	var out bytes.Buffer
	if err := p.node().Render(&out); err != nil {
		http.Error(w, "the page could not be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // the client is gone
}

// refuse answers with an error: as JSON to an API request, otherwise as a page. name is the lock's
// name, if the page should link to it.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, name string, err error) {
	why := refusalOf(err)
	if isAPI(r) {
		h.writeJSON(w, why.status, errorAnswer{Schema: view.Schema, Error: why.text})
		return
	}
	p := page{Title: view.Safe(h.config.Title), Heading: why.title, Allow: h.config.allows(r), Self: query{view: viewList}.link(), Doctor: h.config.Doctor != nil}
	if name != "" {
		p.Self = nameLink(name)
	}
	p.Notes = []note{{"bad", view.Safe(why.text)}}
	h.write(w, why.status, p)
}

// refusalOf returns the status and the words for an error.
func refusalOf(err error) refusal {
	var known refusal
	var hidden hiddenError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &hidden):
		return refusal{http.StatusNotFound, "Not shown", hidden.Error()}
	case errors.Is(err, driver.ErrInvalid):
		return refusal{http.StatusBadRequest, "Not possible", view.ErrorText(err)}
	case errors.Is(err, driver.ErrUnavailable):
		return refusal{http.StatusServiceUnavailable, "The store does not answer", view.ErrorText(err)}
	}
	return refusal{http.StatusInternalServerError, "Failed", view.ErrorText(err)}
}
