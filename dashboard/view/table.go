package view

import (
	"slices"
	"strings"
)

// A Table is a list of rows of cells. The first row is the header.
type Table [][]string

// Row adds a row.
func (t *Table) Row(cells ...string) { *t = append(*t, cells) }

// The space between columns, and the width up to which all rows in a column are padded. A longer
// cell moves only the cells after it.
const gap, widestPadded = 2, 60

// Lines returns the rows with aligned columns.
func (t Table) Lines() []string {
	if len(t) == 0 {
		return nil
	}
	widths := make([]int, len(t[0]))
	for _, cells := range t {
		for j, cell := range cells {
			if n := Cells(cell); n <= widestPadded {
				widths[j] = max(widths[j], n)
			}
		}
	}
	lines := make([]string, len(t))
	for i, cells := range t {
		var line strings.Builder
		for j, cell := range cells {
			line.WriteString(padded(cell, widths[j]) + strings.Repeat(" ", gap))
		}
		lines[i] = strings.TrimRight(line.String(), " ")
	}
	return lines
}

// String returns the lines as a single text.
func (t Table) String() string {
	if len(t) == 0 {
		return ""
	}
	return strings.Join(t.Lines(), "\n") + "\n"
}

// Fit returns the table with lines of width columns at most, as far as possible. It first drops the
// columns in mayGo, in this order, and then shortens long names and holders. So a long name cannot
// push the other rows' data off the screen.
func (t Table) Fit(width int, mayGo ...string) Table {
	if width <= 0 || len(t) == 0 {
		return t
	}
	least := readable
	for _, head := range mayGo {
		if elastic(head) { // it and those after it stay as long as there is any room
			least = Shortest
		}
		if t.width(least) > width {
			t = t.without(head)
		}
	}
	limit := t.limit(width)
	fitted := make(Table, len(t))
	for i, cells := range t {
		fitted[i] = slices.Clone(cells)
		for j := range cells {
			if elastic(t[0][j]) {
				fitted[i][j] = Shorten(cells[j], limit)
			}
		}
	}
	return fitted
}

// elastic reports whether a column's cells can be shortened.
func elastic(head string) bool {
	return slices.Contains([]string{"NAME", "HOLDER", "WAITER", "KEY"}, strings.TrimSpace(head))
}

// Shortest is the least number of characters left in a name, and readable while there are columns
// to drop.
const Shortest, readable = 12, 24

// width returns the table's width if no elastic column is wider than limit.
func (t Table) width(limit int) (sum int) {
	for j, head := range t[0] {
		widest := 0
		for _, cells := range t {
			widest = max(widest, Cells(cells[j]))
		}
		if elastic(head) {
			widest = min(widest, limit)
		}
		sum += widest
	}
	return sum + gap*(len(t[0])-1)
}

// limit returns the largest limit for elastic columns with which the table fits into
// width.
func (t Table) limit(width int) int {
	limit := max(width, Shortest)
	for limit > Shortest && t.width(limit) > width {
		limit--
	}
	return limit
}

// without returns the table without a column.
func (t Table) without(head string) Table {
	at := slices.IndexFunc(t[0], func(h string) bool { return strings.TrimSpace(h) == head })
	if at < 0 {
		return t
	}
	less := make(Table, len(t))
	for i, cells := range t {
		less[i] = slices.Delete(slices.Clone(cells), at, at+1)
	}
	return less
}

// Shorten removes characters from the middle of a text: names often differ at the end. The result
// has at most limit cells.
func Shorten(text string, limit int) string {
	if limit < 2 || Cells(text) <= limit {
		return text
	}
	front := (limit - 1) / 2
	return prefix(text, front) + "…" + suffix(text, limit-1-front)
}
