package servicetest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// WantRows checks that a table of a page has rows with exactly these names, in this order.
// The table is the first one after the heading, and the names are its first column.
func WantRows(t *testing.T, page, heading string, names []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n"+heading+"\n")
	var rows []string
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) > 2 {
			rows = append(rows, strings.TrimSpace(cells[1]))
		} else if len(rows) > 0 {
			break
		}
	}
	if rows = rows[min(2, len(rows)):]; !slices.Equal(rows, names) { // the first two are the header
		t.Errorf("%s, %q: the rows are\n%q, want\n%q", page, heading, rows, names)
	}
}
