package interop

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// pageVariable names the output file for the tables. A relative path begins in this file's
// directory.
const pageVariable = "DIBS_INTEROP_OUT"

// In a page with these lines, the tables replace the text between them.
const (
	beginOfTables = "<!-- Written by make interop LANGUAGES=all OUT=docs/interop.md. Do not edit it by hand. -->\n"
	endOfTables   = "<!-- The end of what make interop has written. -->\n"
)

// A table contains a matrix row in each line.
type table struct {
	title   string
	rows    func(*row) bool
	columns []column
}

// tables returns all tables, with their rows' common columns.
func tables() []table {
	same := func(r *row) bool { return !r.otherForm }
	other := func(r *row) bool { return r.otherForm }
	redisson := func(r *row) bool { return r.redisson }
	return []table{
		{"Exclusion", same, exclusion()},
		{"Waiting", same, append(wakeUps(), pausing())},
		{"Saturation", same, []column{alone(), saturated()}},
		{"Saturation in Redisson mode", redisson, uneven()},
		{"Libraries of another form", other, append(refusal(), refusalUnderLoad())},
	}
}

// writePage writes the finished rows to the file named by pageVariable.
func writePage(t *testing.T, rows []*row, complete bool) {
	path := os.Getenv(pageVariable)
	if path == "" || len(rows) == 0 {
		return
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	page, err := replaceTables(string(old), renderTables(rows), complete)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
}

// replaceTables returns a page with new tables. A page without the marks contains only the tables.
// A page with the marks should not lose the rows for a language that was not tested.
func replaceTables(page, text string, complete bool) (string, error) {
	before, rest, found := strings.Cut(page, beginOfTables)
	if !found {
		return text, nil
	}
	if !complete {
		return "", errors.New("this page has the rows of all libraries: use LANGUAGES=all")
	}
	_, after, found := strings.Cut(rest, endOfTables)
	if !found {
		return "", fmt.Errorf("there is no line %q", strings.TrimSpace(endOfTables))
	}
	return before + beginOfTables + "\n" + text + "\n" + endOfTables + after, nil
}

func renderTables(rows []*row) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %s.\n", time.Now().UTC().Format(time.DateOnly), servers(rows))
	renderTable(&text, "Versions", []string{"library", "version", "runtime", "lock key of `order:42`"}, rows, func(r *row) []string {
		return []string{r.version, r.runtime, "`" + r.key("order:42") + "`"}
	})
	for _, table := range tables() {
		heads := []string{"library"}
		for _, c := range table.columns {
			heads = append(heads, c.headings()...)
		}
		rows := slices.DeleteFunc(slices.Clone(rows), func(r *row) bool { return !table.rows(r) })
		renderTable(&text, table.title, heads, rows, func(r *row) (cells []string) {
			for _, c := range table.columns {
				cells = append(cells, r.cellsOf(c)...)
			}
			return cells
		})
	}
	return text.String()
}

// cellsOf returns dashes for a column missing in the row.
func (r *row) cellsOf(c column) []string {
	if cells, ok := r.cells[c.title]; ok {
		return cells
	}
	return slices.Repeat([]string{"–"}, len(c.headings()))
}

// servers returns the servers' versions; until now, all runs had the same version.
func servers(rows []*row) string {
	var versions []string
	for _, r := range rows {
		if !slices.Contains(versions, r.redis) {
			versions = append(versions, r.redis)
		}
	}
	return strings.Join(versions, ", ")
}

func renderTable(text *strings.Builder, title string, heads []string, rows []*row, cells func(*row) []string) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(text, "\n### %s\n\n", title)
	line := func(cells []string) { fmt.Fprintf(text, "| %s |\n", strings.Join(cells, " | ")) }
	line(heads)
	fmt.Fprintf(text, "|%s\n", strings.Repeat("---|", len(heads)))
	for _, r := range rows {
		line(append([]string{r.name}, cells(r)...))
	}
}

func TestReplaceTables(t *testing.T) {
	t.Parallel()
	page := "# Page\n\n" + beginOfTables + "\nold\n\n" + endOfTables + "\n## Next\n"
	want := "# Page\n\n" + beginOfTables + "\nnew\n\n" + endOfTables + "\n## Next\n"
	if have, err := replaceTables(page, "new\n", true); err != nil || have != want {
		t.Errorf("page %q, %v; want %q", have, err, want)
	}
	if _, err := replaceTables(page, "new\n", false); err == nil {
		t.Error("no error for an incomplete run")
	}
	if _, err := replaceTables("# Page\n"+beginOfTables, "new\n", true); err == nil {
		t.Error("no error for a page without an end of the tables")
	}
	for _, page := range []string{"", "old\n"} {
		if have, err := replaceTables(page, "new\n", false); err != nil || have != "new\n" {
			t.Errorf("page %q, %v; want the tables alone", have, err)
		}
	}
}

// The tables should have a single cell below each heading.
func TestRenderTables(t *testing.T) {
	t.Parallel()
	failed := &row{library: library{name: "failed"}, redis: "Redis 7", version: "1", runtime: "Go", cells: map[string][]string{}}
	for _, c := range exclusion() {
		failed.cells[c.title] = c.failed()
	}
	var widths []int
	for line := range strings.Lines(renderTables([]*row{failed})) {
		if strings.HasPrefix(line, "|") {
			widths = append(widths, strings.Count(line, "|"))
		}
	}
	if len(widths) != 4*3 {
		t.Fatalf("%d lines in tables, want 4 tables with 3 each", len(widths))
	}
	for i := 0; i < len(widths); i += 3 {
		if widths[i] != widths[i+1] || widths[i] != widths[i+2] {
			t.Errorf("table %d: %v bars in its lines", i/3, widths[i:i+3])
		}
	}
}
