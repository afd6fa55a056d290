package dashboard

import (
	"bytes"
	"net/http"
	"strings"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/dashboard/waitgraph"
)

// The API's answers. Their words are those in docs/cli-json.md: durations are whole milliseconds,
// and tokens are shortened.

// A stamp is the beginning of each answer.
type stamp struct {
	Schema int       `json:"schema"`
	Time   time.Time `json:"time,omitzero"`   // when the states were read
	Took   int64     `json:"took_ms"`         // how long the poll took
	Error  string    `json:"error,omitempty"` // why the states are old, or missing
}

type errorAnswer struct {
	Schema int    `json:"schema"`
	Error  string `json:"error"`
}

type namesAnswer struct {
	stamp
	Held    int          `json:"held"`
	Waiting int          `json:"waiting"`
	Longest int64        `json:"longest_wait_ms"`
	Never   int          `json:"never_expires"`
	Foreign int          `json:"foreign"`
	Page    int          `json:"page"`
	Pages   int          `json:"pages"`
	Matches int          `json:"matches"` // names on all pages that match the glob
	Names   []view.State `json:"names"`
}

type nameAnswer struct {
	view.State
	Time   time.Time     `json:"time"`
	Recent []view.Change `json:"recent"`
}

type processesAnswer struct {
	stamp
	Page      int             `json:"page"`
	Pages     int             `json:"pages"`
	Matches   int             `json:"matches"`
	Processes []processAnswer `json:"processes"`
}

type processAnswer struct {
	Host  string        `json:"host"`
	PID   int           `json:"pid"`
	ID    string        `json:"id"`
	Holds []entryAnswer `json:"holds"`
	Waits []entryAnswer `json:"waits"`
}

type entryAnswer struct {
	waitgraph.Entry
	TTL    *int64 `json:"ttl_ms,omitempty"`
	Waited *int64 `json:"waited_ms,omitempty"`
}

type waitsAnswer struct {
	stamp
	Cycles  []cycleAnswer `json:"cycles"`
	Waits   []waitAnswer  `json:"waits"`
	Partial bool          `json:"partial"` // there are more waits: cycles may be missing
}

type cycleAnswer struct {
	Sure  bool         `json:"sure"`
	Waits []waitAnswer `json:"waits"`
}

type waitAnswer struct {
	Waiter  string `json:"waiter"`
	Name    string `json:"name"`
	Holder  string `json:"holder"`
	InCycle bool   `json:"in_cycle"`
}

type findingsAnswer struct {
	Schema   int            `json:"schema"`
	Time     time.Time      `json:"time,omitzero"` // when the check ended
	Worst    string         `json:"worst"`
	Findings []view.Finding `json:"findings"`
	Error    string         `json:"error,omitempty"`
}

func isAPI(r *http.Request) bool {
	return strings.HasPrefix(strings.TrimPrefix(r.URL.Path, "/"), "api/")
}

// writeJSON sends a line in JSON.
func (h *handler) writeJSON(w http.ResponseWriter, status int, answer any) {
	var out bytes.Buffer
	if err := view.WriteLine(&out, answer); err != nil {
		http.Error(w, "the answer could not be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // the client is gone
}

// stampOf returns a frame's stamp, and the answer's status.
func stampOf(f *frame) (stamp, int) {
	s := f.snapshot
	one := stamp{Schema: view.Schema, Took: s.Took.Milliseconds()}
	if !s.At.IsZero() {
		one.Time = s.At.UTC().Truncate(time.Millisecond)
	}
	if s.Err != nil {
		one.Error = view.ErrorText(s.Err)
		return one, http.StatusServiceUnavailable
	}
	return one, http.StatusOK
}

func (h *handler) apiNames(w http.ResponseWriter, r *http.Request) {
	q, err := h.parseQuery(r, viewList)
	if err != nil {
		h.refuse(w, r, "", err)
		return
	}
	f := h.latest(r.Context())
	found, err := q.selected(f.names())
	if err != nil {
		h.refuse(w, r, "", err)
		return
	}
	c, p := f.counts(), pagesOf(q, len(found))
	states, err := h.statesOf(r.Context(), f, pageOf(p, found))
	if err != nil {
		h.refuse(w, r, "", err)
		return
	}
	one, status := stampOf(f)
	h.writeJSON(w, status, namesAnswer{
		stamp: one, Held: c.Held, Waiting: c.Waiting, Longest: c.Longest.Milliseconds(), Never: c.Never, Foreign: c.Foreign,
		Page: p.Number, Pages: p.Count, Matches: len(found), Names: states,
	})
}

func (h *handler) apiName(w http.ResponseWriter, r *http.Request) {
	q, err := h.parseQuery(r, viewName)
	if err != nil {
		h.refuse(w, r, "", err)
		return
	}
	state, err := h.inspect(r.Context(), q.name)
	if err != nil {
		h.refuse(w, r, "", err)
		return
	}
	now := time.Now()
	answer := nameAnswer{State: view.StateOf(state, now), Time: now.UTC().Truncate(time.Millisecond), Recent: append([]view.Change{}, h.hub.Recent(q.name)...)}
	h.writeJSON(w, http.StatusOK, answer)
}

func (h *handler) apiProcesses(w http.ResponseWriter, r *http.Request) {
	q, err := h.parseQuery(r, viewProcesses)
	if err != nil {
		h.refuse(w, r, "", err)
		return
	}
	f := h.latest(r.Context())
	found := f.graph.Processes
	if q.process != "" {
		found = withAddress(found, q.process)
	}
	p := pagesOf(q, len(found))
	one, status := stampOf(f)
	answer := processesAnswer{stamp: one, Page: p.Number, Pages: p.Count, Matches: len(found), Processes: []processAnswer{}}
	for _, process := range pageOf(p, found) {
		answer.Processes = append(answer.Processes, processAnswerOf(process))
	}
	h.writeJSON(w, status, answer)
}

func processAnswerOf(p waitgraph.Process) processAnswer {
	a := processAnswer{Host: p.Host, PID: p.PID, ID: p.ID, Holds: []entryAnswer{}, Waits: []entryAnswer{}}
	for _, e := range p.Holds {
		one := entryAnswer{Entry: e}
		if e.Remaining >= 0 {
			one.TTL = new(e.Remaining.Milliseconds())
		}
		a.Holds = append(a.Holds, one)
	}
	for _, e := range p.Waits {
		a.Waits = append(a.Waits, entryAnswer{Entry: e, Waited: new(e.Waited.Milliseconds())})
	}
	return a
}

func (h *handler) apiWaits(w http.ResponseWriter, r *http.Request) {
	f := h.latest(r.Context())
	g := f.graph
	one, status := stampOf(f)
	answer := waitsAnswer{stamp: one, Cycles: []cycleAnswer{}, Waits: waitAnswersOf(g, g.Waits), Partial: g.Partial}
	for _, c := range g.Cycles {
		answer.Cycles = append(answer.Cycles, cycleAnswer{c.Sure, waitAnswersOf(g, c.Waits)})
	}
	h.writeJSON(w, status, answer)
}

func waitAnswersOf(g waitgraph.Graph, waits []waitgraph.Wait) []waitAnswer {
	all := make([]waitAnswer, len(waits))
	for i, w := range waits {
		all[i] = waitAnswer{g.Processes[w.Waiter].String(), w.Name, g.Processes[w.Holder].String(), w.InCycle}
	}
	return all
}

func (h *handler) apiFindings(w http.ResponseWriter, r *http.Request) {
	answer := findingsAnswer{Schema: view.Schema, Worst: checkup.Note.String(), Findings: []view.Finding{}}
	report := h.runs.wait(r.Context())
	if report != nil {
		answer.Time, answer.Worst = report.at.UTC().Truncate(time.Millisecond), report.findings.Worst().String()
		answer.Error = view.ErrorText(report.err)
		answer.Findings = view.FindingsOf(report.findings)
	}
	h.writeJSON(w, http.StatusOK, answer)
}
