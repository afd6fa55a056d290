package interop

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// resultsVariable names the output file for the results. A relative path begins in this file's
// directory.
const resultsVariable = "DIBS_INTEROP_OUT"

// writeResults writes the finished rows to a file, as CSV. Only a run of all languages may replace
// a file: others would lose rows.
func writeResults(path string, rows []*row, complete bool) error {
	if path == "" || len(rows) == 0 {
		return nil
	}
	if _, err := os.Stat(path); err == nil && !complete {
		return fmt.Errorf("%s may have rows of other languages: use LANGUAGES=all, or a new file", path)
	}
	var text bytes.Buffer
	if err := csv.NewWriter(&text).WriteAll(records(rows)); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}

// records returns a heading, and a library's results in each line.
func records(rows []*row) [][]string {
	var results []string
	for _, r := range rows {
		for _, c := range slices.Concat(r.columns()...) {
			for _, h := range c.headings() {
				if !slices.Contains(results, h) {
					results = append(results, h)
				}
			}
		}
	}
	date := time.Now().UTC().Format(time.DateOnly)
	all := [][]string{append([]string{"library", "version", "runtime", "lock key of order:42", "server", "date"}, results...)}
	for _, r := range rows {
		line := []string{r.name, r.version, r.runtime, r.key("order:42"), r.redis, date}
		have := r.results()
		for _, h := range results {
			line = append(line, have[h]) // empty if the row does not have this column
		}
		all = append(all, line)
	}
	return all
}

// results returns a row's cells by their headings.
func (r *row) results() map[string]string {
	all := make(map[string]string)
	for _, c := range slices.Concat(r.columns()...) {
		for i, cell := range r.cells[c.title] {
			all[c.headings()[i]] = cell
		}
	}
	return all
}

func TestWriteResults(t *testing.T) {
	t.Parallel()
	rows := []*row{{library: library{name: "one"}, version: "1", cells: map[string][]string{}}}
	path := filepath.Join(t.TempDir(), "results.csv")
	if err := writeResults(path, rows, false); err != nil {
		t.Fatal(err)
	}
	if err := writeResults(path, rows, false); err == nil {
		t.Error("an incomplete run has replaced a file")
	}
	if err := writeResults(path, rows, true); err != nil {
		t.Error(err)
	}
}

// Each line should contain a cell for each heading, and a row should have no result in a missing
// column.
func TestRecords(t *testing.T) {
	t.Parallel()
	failed := &row{library: library{name: "failed"}, cells: map[string][]string{}}
	other := &row{library: library{name: "other", otherForm: true}, cells: map[string][]string{}}
	for _, r := range []*row{failed, other} {
		for _, c := range slices.Concat(r.columns()...) {
			r.setCells(c, c.failed())
		}
	}
	all := records([]*row{failed, other})
	for _, line := range all {
		if len(line) != len(all[0]) {
			t.Errorf("%d cells, want %d: %q", len(line), len(all[0]), line)
		}
	}
	for heading, want := range map[string][]string{
		"dibs first":     {"no", "no"},
		"theirs expires": {"no", ""},
		"late release":   {"", "no"},
	} {
		at := slices.Index(all[0], heading)
		if at < 0 {
			t.Fatalf("no heading %q in %q", heading, all[0])
		}
		if have := []string{all[1][at], all[2][at]}; !slices.Equal(have, want) {
			t.Errorf("%s: %q, want %q", heading, have, want)
		}
	}
}
