package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
)

// interleave measures peers round by round, each round between two runs of the
// floor and every other round backwards, so that a machine that becomes slower or
// faster does so for all. Rates become ratios to the floor of the same round.
func (t *table) interleave(rounds, load int, floor string, names []string, measure measurement) error {
	group := strconv.Itoa(load)
	order := slices.Concat([]string{floor}, names, []string{floor})
	for _, name := range order[:len(order)-1] {
		t.row(group, name) // in this order, whichever comes first
	}
	for round := range rounds {
		progress("%s, %s %s, round %d of %d", t.name, t.load, group, round+1, rounds)
		if err := t.round(group, floor, order, measure); err != nil {
			return err
		}
		slices.Reverse(order)
	}
	t.note(group, floor, t.busyWarning(t.row(group, floor)))
	return nil
}

// busyWarning warns of a machine that was busy with something else: the same thing took
// so differently long that ratios are not to be trusted.
func (t *table) busyWarning(floor *row) string {
	const calm = 1.5
	var rates []float64
	for _, f := range floor.runs {
		rates = append(rates, f[t.columns[0].name])
	}
	factor := slices.Max(rates) / slices.Min(rates)
	if factor < calm {
		return ""
	}
	return fmt.Sprintf("its runs differ by a factor of %.1f, so the machine was not idle; more and shorter rounds may help", factor)
}

// A measurement is one run of a peer. Its note says what a reader should know of
// it beside the figures, if anything.
type measurement func(peer string) (f figures, note string, err error)

// withRetry runs a second time what failed: a machine that stalls for seconds must not
// cost the table that has taken minutes.
func (m measurement) withRetry(peer string) (figures, string, error) {
	f, note, err := m(peer)
	if err == nil {
		return f, note, nil
	}
	progress("%s: %v; once more", peer, err)
	return m(peer)
}

func (t *table) round(group, floor string, order []string, measure measurement) error {
	var floors, others []figures
	for _, name := range order {
		f, note, err := measure.withRetry(name)
		if err != nil {
			return err
		}
		progress("  %s: %s %s", name, format(f[t.columns[0].name], 0), t.columns[0].name)
		t.note(group, name, note)
		r := t.row(group, name)
		r.runs = append(r.runs, f)
		if name == floor {
			floors = append(floors, f)
		} else {
			others = append(others, f)
		}
	}
	for _, f := range slices.Concat(floors, others) {
		t.compare(f, floors)
	}
	return nil
}

// compare adds the figures that are relative to the floor's: to one, for the
// rate, and the difference for allocations.
func (t *table) compare(f figures, floors []figures) {
	rate, allocs := t.columns[0].name, "allocs"
	f["ratio"] = f[rate] / meanOf(floors, rate)
	f["over floor"] = f[allocs] - meanOf(floors, allocs)
}

func meanOf(runs []figures, column string) float64 {
	var values []float64
	for _, f := range runs {
		values = append(values, f[column])
	}
	return mean(values)
}

// progress tells who waits at a terminal that something goes on.
func progress(text string, args ...any) { fmt.Fprintf(os.Stderr, "# "+text+"\n", args...) }
