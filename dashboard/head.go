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

// A head is the first part in each fragment: the counts and the warnings.
type head struct {
	Counts   []count
	Warnings []warning
	At       string // when the states were read
	AtFull   string
	Took     string // how long the poll took
}

type count struct {
	Label, Value string
	Zero         bool
}

// A warning is a sentence about a problem, with a link to its details.
type warning struct {
	Class string // bad or odd, for the colour
	Parts []part
	Link  string
	More  string // the link's text
}

// A part of a sentence. If it is a name or a process, it is isolated from the others, because it
// can be written from right to left.
type part struct {
	Text string
	Name bool
}

func words(text string) []part { return []part{{Text: text}} }

// headOf returns a view's head. A name's page is about this name, and on other pages the head does
// not repeat the text below it.
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

// clock returns a time of day, with the date if it is not on the same day as now: the frame's time.
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

// nodeWarnings returns a warning for each quorum node that does not answer.
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
