package dashboard

import (
	"net/http"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
)

// maxEventRows is the maximum number of events shown for all names.
const maxEventRows = 200

// An eventLog contains the events for all names.
type eventLog struct {
	Revocations []revocationRow
	Events      []logRow
	Since       string
}

type revocationRow struct{ At, Name, Link, Holder, User, Reason string }

// A logRow is an event with its name.
type logRow struct {
	eventRow
	Name, Link string // empty: the event is about the store
}

func (h *handler) eventLogOf(f *frame) eventLog {
	l := eventLog{}
	if !f.snapshot.Began.IsZero() {
		l.Since = clock(f.snapshot.Began, f.snapshot.At)
	}
	for _, c := range h.hub.Revocations() {
		l.Revocations = append(l.Revocations, revocationRow{
			At: c.Time.UTC().Format(time.DateTime) + " UTC", Name: view.Safe(c.Name), Link: nameLink(c.Name),
			Holder: c.Holder.String(), User: view.Safe(c.User), Reason: view.Safe(c.Reason),
		})
	}
	for _, c := range h.lastEvents() {
		row := logRow{eventRow: eventRowOf(c, f.snapshot.At)}
		if c.Name == "" {
			row.Who, row.More = "the store", view.Safe(c.Error)
		} else {
			row.Name, row.Link = view.Safe(c.Name), nameLink(c.Name)
		}
		l.Events = append(l.Events, row)
	}
	return l
}

// lastEvents returns the last events for all names, the newest first. A lock held before the first
// poll is not an event.
func (h *handler) lastEvents() []view.Change {
	return h.hub.Changes(maxEventRows, func(c view.Change) bool { return c.Event != view.EventHeld })
}

type eventsAnswer struct {
	stamp
	Events []view.Change `json:"events"`
}

type revocationsAnswer struct {
	Schema      int           `json:"schema"`
	Revocations []view.Change `json:"revocations"`
}

// apiEvents answers with the last events for all names.
func (h *handler) apiEvents(w http.ResponseWriter, r *http.Request) {
	one, status := stampOf(h.latest(r.Context()))
	h.writeJSON(w, status, eventsAnswer{stamp: one, Events: append([]view.Change{}, h.lastEvents()...)})
}

func (h *handler) apiRevocations(w http.ResponseWriter, _ *http.Request) {
	h.writeJSON(w, http.StatusOK, revocationsAnswer{view.Schema, append([]view.Change{}, h.hub.Revocations()...)})
}
