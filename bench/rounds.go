package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
)

// interleave measures the peers in rounds. Each round begins and ends with a baseline run, and
// every other round is reversed: so a change in the machine's speed affects all peers alike. It
// adds the ratios to the baseline in the same round.
func (t *table) interleave(rounds, load int, baseline string, names []string, measure measurement) error {
	group := strconv.Itoa(load)
	order := slices.Concat([]string{baseline}, names, []string{baseline})
	for _, name := range order[:len(order)-1] {
		t.row(group, name) // fix the row order
	}
	for round := range rounds {
		progress("%s, %s %s, round %d of %d", t.name, t.load, group, round+1, rounds)
		if err := t.round(group, baseline, order, measure); err != nil {
			return err
		}
		slices.Reverse(order)
	}
	t.addRemark(group, baseline, t.busyWarning(t.row(group, baseline)))
	return nil
}

// busyWarning returns a warning if the baseline runs differ so much that the ratios are unreliable:
// the machine was busy with other work.
func (t *table) busyWarning(baseline *row) string {
	const calm = 1.5
	var rates []float64
	for _, f := range baseline.runs {
		rates = append(rates, f[t.columns[0].name])
	}
	factor := slices.Max(rates) / slices.Min(rates)
	if factor < calm {
		return ""
	}
	return fmt.Sprintf("its runs differ by a factor of %.1f: the machine was not idle; more and shorter rounds may help", factor)
}

// A measurement performs a single run of a peer. note is a remark for the table's reader, or "".
type measurement func(peer string) (f figures, note string, err error)

// withRetry repeats a failed run once: a stall of a few seconds should not discard a table after
// minutes of measurement.
func (m measurement) withRetry(peer string) (figures, string, error) {
	f, note, err := m(peer)
	if err == nil {
		return f, note, nil
	}
	progress("%s: %v; retrying", peer, err)
	return m(peer)
}

func (t *table) round(group, baseline string, order []string, measure measurement) error {
	var baselines, others []figures
	for _, name := range order {
		f, note, err := measure.withRetry(name)
		if err != nil {
			return err
		}
		progress("  %s: %s %s", name, format(f[t.columns[0].name], 0), t.columns[0].name)
		t.addRemark(group, name, note)
		r := t.row(group, name)
		r.runs = append(r.runs, f)
		if name == baseline {
			baselines = append(baselines, f)
		} else {
			others = append(others, f)
		}
	}
	for _, f := range slices.Concat(baselines, others) {
		t.compare(f, baselines)
	}
	return nil
}

// compare adds the figures relative to the baseline: the ratio between the rates, and the
// difference in allocations.
func (t *table) compare(f figures, baselines []figures) {
	rate, allocs := t.columns[0].name, "allocs"
	f["ratio"] = f[rate] / meanOf(baselines, rate)
	f["over baseline"] = f[allocs] - meanOf(baselines, allocs)
}

func meanOf(runs []figures, column string) float64 {
	var values []float64
	for _, f := range runs {
		values = append(values, f[column])
	}
	return mean(values)
}

// progress prints a progress line on stderr.
func progress(text string, args ...any) { fmt.Fprintf(os.Stderr, "# "+text+"\n", args...) }
