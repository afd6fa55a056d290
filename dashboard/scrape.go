package dashboard

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/dashboard/watch"
	"github.com/dibslock/dibs/driver"
)

// scrapeTime is how long a scrape waits for a poll: less than Prometheus' limit, so that it gets an
// answer in an outage. After this time the answer contains the previous poll's states.
const scrapeTime = 5 * time.Second

// serveMetrics answers with the store's metrics, in Prometheus' text format.
func (h *handler) serveMetrics(w http.ResponseWriter, r *http.Request) {
	f := h.scraped(r.Context())
	var e exposition
	h.metrics.write(&e, f)
	writeState(&e, f)
	writeFindings(&e, h.runs.within(scrapeEvery))
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(e.Bytes()) // the client is gone
}

// scraped returns the last completed poll's frame. Before the first poll the frame contains no
// states, but an error.
func (h *handler) scraped(ctx context.Context) *frame {
	ctx, cancel := context.WithTimeout(ctx, scrapeTime)
	defer cancel()
	if s := h.hub.Await(ctx); s != nil {
		return h.frames.of(s)
	}
	return newFrame(&watch.Snapshot{Err: &driver.UnavailableError{Op: "list", Cause: context.DeadlineExceeded}})
}

// write writes the counters, and the present state of f's classes.
func (m *metrics) write(e *exposition, f *frame) {
	now := make(map[*classMetrics]view.Counts)
	for _, n := range f.names() {
		of := m.classes.Of(n.Name)
		c := now[of]
		c.Add(n)
		now[of] = c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*classMetrics, 0, len(now))
	for _, of := range m.classes.All() {
		all = append(all, of)
	}
	slices.SortFunc(all, func(a, b *classMetrics) int { return cmp.Compare(a.class, b.class) })
	if f.snapshot.Err == nil {
		writeClasses(e, all, now)
	}
	e.family("dibs_acquire_seconds", "histogram", "Wait of each lease whose begin was seen, by the class of its name, its kind, and whether it was handed off.")
	for _, of := range all {
		for _, a := range slices.SortedFunc(maps.Keys(of.acquired), acquisition.compare) {
			e.histogram("dibs_acquire_seconds", of.acquired[a], "class", of.class, "kind", a.kind, "result", a.result)
		}
	}
	e.family("dibs_lost_total", "counter", "Number of leases that were revoked by this dashboard, by the class of the name.")
	for _, of := range all {
		e.value("dibs_lost_total", float64(of.revoked), "class", of.class, "reason", "revoked")
	}
	e.family("dibs_poll_seconds", "summary", "Duration of the polls of the store.")
	e.value("dibs_poll_seconds_sum", m.pollTime.Seconds())
	e.value("dibs_poll_seconds_count", float64(m.polls))
	e.one("dibs_poll_failed_total", "counter", "Number of polls that the store has not answered.", float64(m.failed))
	if !m.answered.IsZero() {
		const milli = 1000
		e.one("dibs_poll_answered_timestamp_seconds", "gauge", "When the store has answered a poll for the last time.", float64(m.answered.UnixMilli())/milli)
	}
}

func writeClasses(e *exposition, all []*classMetrics, now map[*classMetrics]view.Counts) {
	for _, g := range []struct {
		name, help string
		of         func(view.Counts) float64
	}{
		{"dibs_holding", "Number of leases that are held now, by the class of the name.", func(c view.Counts) float64 { return float64(c.Holding) }},
		{"dibs_waiting", "Number of calls that are in a wait queue now, by the class of the name.", func(c view.Counts) float64 { return float64(c.Waiting) }},
		{"dibs_longest_wait_seconds", "The longest wait in a queue now, by the class of the name.", func(c view.Counts) float64 { return c.Longest.Seconds() }},
	} {
		e.family(g.name, "gauge", g.help)
		for _, of := range all {
			e.value(g.name, g.of(now[of]), "class", of.class)
		}
	}
}

// writeState writes the metrics for all names together.
func writeState(e *exposition, f *frame) {
	if f.snapshot.Number > 0 { // otherwise no poll ended
		e.one("dibs_store_up", "gauge", "Whether the store has answered the last poll: 1 or 0.", bit(f.snapshot.Err == nil))
	}
	if f.snapshot.Err != nil {
		return
	}
	c := f.counts()
	e.one("dibs_names_held", "gauge", "Number of names with a holder.", float64(c.Held))
	e.one("dibs_names_waited", "gauge", "Number of names with waiters.", float64(c.Waited))
	e.one("dibs_names_never_expire", "gauge", "Number of names with a lease, or another value, that never expires.", float64(c.Never))
	e.one("dibs_names_foreign", "gauge", "Number of names whose key has a value that dibs did not write.", float64(c.Foreign))
	e.family("dibs_cycles", "gauge", "Number of groups of processes that wait for each other. One that is not sure is counted when three scrapes or updates of a page in a row have it.")
	sure := 0
	for _, one := range f.cycles {
		sure += int(bit(one.Sure))
	}
	e.value("dibs_cycles", float64(sure), "sure", "true")
	e.value("dibs_cycles", float64(len(f.cycles)-sure), "sure", "false")
	up := nodesUp(f.snapshot.States)
	if len(up) == 0 {
		return
	}
	e.family("dibs_node_up", "gauge", "Whether a node of the quorum answers: 1 or 0.")
	for i, one := range up {
		e.value("dibs_node_up", bit(one), "node", strconv.Itoa(i))
	}
}

// nodesUp returns which quorum nodes have answered for all names.
func nodesUp(states []driver.State) (up []bool) {
	for _, s := range states {
		for i, n := range s.Nodes {
			if i == len(up) {
				up = append(up, true)
			}
			up[i] = up[i] && !errors.Is(n.Err, driver.ErrUnavailable)
		}
	}
	return up
}

// writeFindings writes the doctor's number of findings. After an error there may be more, so other
// severities are left out.
func writeFindings(e *exposition, r *report) {
	if r == nil {
		return
	}
	e.one("dibs_doctor_failed", "gauge", "Whether the last check of the doctor has failed, perhaps after some findings: 1 or 0.", bit(r.err != nil))
	found := make(map[checkup.Severity]int)
	for _, f := range r.findings {
		found[f.Severity]++
	}
	e.family("dibs_findings", "gauge", "Number of findings of the doctor, by severity.")
	for _, s := range []checkup.Severity{checkup.Note, checkup.Unchecked, checkup.Warning, checkup.Critical} {
		if r.err == nil || found[s] > 0 {
			e.value("dibs_findings", float64(found[s]), "severity", s.String())
		}
	}
}

// bit returns 1 for true.
func bit(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
