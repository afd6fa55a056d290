package dashboard

import (
	"net/http"

	"github.com/dibslock/dibs/internal/view"
)

// maxEventRows is how many events of all names are shown at most.
const maxEventRows = 200

type eventsAnswer struct {
	stamp
	Events []view.Change `json:"events"`
}

type revocationsAnswer struct {
	Schema      int           `json:"schema"`
	Revocations []view.Change `json:"revocations"`
}

// lastEvents returns the last events of all names, the newest first.
func (h *handler) lastEvents() []view.Change {
	return h.hub.Changes(maxEventRows, func(view.Change) bool { return true })
}

// apiEvents answers with the last events of all names.
func (h *handler) apiEvents(w http.ResponseWriter, r *http.Request) {
	one, status := stampOf(h.latest(r.Context()))
	h.writeJSON(w, status, eventsAnswer{stamp: one, Events: append([]view.Change{}, h.lastEvents()...)})
}

func (h *handler) apiRevocations(w http.ResponseWriter, _ *http.Request) {
	h.writeJSON(w, http.StatusOK, revocationsAnswer{view.Schema, append([]view.Change{}, h.hub.Revocations()...)})
}
