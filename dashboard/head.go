package dashboard

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/dashboard/waitgraph"
	"github.com/dibslock/dibs/driver"
)

// A head is the first part of each fragment: the counts, and what is wrong.
type head struct {
	Counts   []count
	Warnings []warning
	At       string // time of the states
	AtFull   string
	Took     string // duration of the poll
}

type count struct {
	Label, Value string
	Zero         bool
}

// A warning is a sentence about something that is wrong, with a link to what is known of it.
type warning struct {
	Class string // bad or odd, for the colour
	Parts []part
	Link  string
	More  string // text of the link
}

// A part of a sentence. That of a name or a process is isolated from the others, because it
// may be written from right to left.
type part struct {
	Text string
	Name bool
}

func words(text string) []part { return []part{{Text: text}} }

// headOf returns the head of a view. The page of a name is about that name, and the others
// do not repeat in the head what is below it.
func headOf(f *frame, r *report, wanted string) head {
	h := head{Warnings: warningsOf(f, r, wanted)}
	if !f.snapshot.At.IsZero() {
		h.At, h.AtFull = clock(f.snapshot.At, f.snapshot.At), f.snapshot.At.UTC().Format(time.RFC3339)
		h.Took = view.Brief(f.snapshot.Took)
	}
	if wanted != viewName {
		h.Counts = countsOf(f.counts())
	}
	return h
}

func countsOf(c view.Counts) (all []count) {
	number := func(label string, n int) {
		all = append(all, count{label, fmt.Sprint(n), n == 0})
	}
	number("held", c.Held)
	number("waiting", c.Waiting)
	all = append(all, count{"oldest wait", orNothing(view.Brief(c.Longest), c.Waiting > 0), c.Waiting == 0})
	number("never expires", c.Never)
	number("foreign", c.Foreign)
	return all
}

func orNothing(text string, something bool) string {
	if !something {
		return "–"
	}
	return text
}

// clock returns a time of day, with the date if that is not the day of now: the time of the frame.
func clock(at, now time.Time) string {
	at, now = at.UTC(), now.UTC()
	layout := time.TimeOnly
	if at.YearDay() != now.YearDay() || at.Year() != now.Year() {
		layout = time.DateTime
	}
	return at.Format(layout) + " UTC"
}

func warningsOf(f *frame, r *report, wanted string) (all []warning) {
	if err := f.snapshot.Err; err != nil {
		text := "The store does not answer: " + view.Safe(view.ErrorText(err))
		if len(f.snapshot.States) > 0 {
			text += ". These are the states of its last answer"
		}
		all = append(all, warning{Class: "bad", Parts: words(text + ".")})
	}
	all = append(all, nodeWarnings(f.snapshot.States)...)
	if wanted != viewName && wanted != viewWaits {
		all = append(all, cycleWarnings(f.graph, f.cycles)...)
	}
	if wanted != viewName && wanted != viewDoctor {
		all = append(all, doctorWarning(r)...)
	}
	return all
}

// nodeWarnings returns a warning for each node of a quorum that does not answer.
func nodeWarnings(states []driver.State) (all []warning) {
	failed := make(map[int]error)
	for _, s := range states {
		for i, n := range s.Nodes {
			if failed[i] == nil && errors.Is(n.Err, driver.ErrUnavailable) {
				failed[i] = n.Err
			}
		}
	}
	for _, i := range slices.Sorted(maps.Keys(failed)) {
		text := fmt.Sprintf("Node %d of the quorum does not answer: %s.", i, view.Safe(view.ErrorText(failed[i])))
		all = append(all, warning{Class: "odd", Parts: words(text)})
	}
	return all
}

// cycleWarnings returns a warning for each of the first cycles.
func cycleWarnings(g waitgraph.Graph, cycles []waitgraph.Cycle) (all []warning) {
	const most = 3
	for _, c := range cycles[:min(len(cycles), most)] {
		w := warning{Class: cycleClass(c), Link: viewWaits, More: "Show the waits"}
		for i, text := range view.CycleParts(g, c) {
			w.Parts = append(w.Parts, part{text, i%2 > 0})
		}
		all = append(all, w)
	}
	if more := len(cycles) - most; more > 0 {
		text := view.Plural(more, "more cycle", "more cycles") + " of processes that wait for each other."
		all = append(all, warning{cycleClass(cycles[most]), words(text), viewWaits, "Show the waits"})
	}
	return all
}

func doctorWarning(r *report) (all []warning) {
	const show = "Show the findings"
	if r == nil {
		return nil
	}
	if r.err != nil {
		all = append(all, warning{"odd", words("The check of the doctor has failed."), viewDoctor, show})
	}
	number := make(map[checkup.Severity]int)
	for _, f := range r.findings {
		number[f.Severity]++
	}
	var parts []string
	if n := number[checkup.Critical]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d critical", n))
	}
	if n := number[checkup.Warning]; n > 0 {
		parts = append(parts, view.Plural(n, "warning", "warnings"))
	}
	if len(parts) == 0 {
		return all
	}
	class := "odd"
	if number[checkup.Critical] > 0 {
		class = "bad"
	}
	return append(all, warning{class, words("The doctor has findings: " + strings.Join(parts, ", ") + "."), viewDoctor, show})
}
