package interop

import "testing"

// A column in the matrix is a test for a row on its own name.
type column struct {
	title string
	parts []string // its cells' headings, if they are several
	test  func(t *testing.T, r *row, name string) []string
}

// one is a column with a single cell.
func one(title string, test func(t *testing.T, r *row, name string) string) column {
	return column{title: title, test: func(t *testing.T, r *row, name string) []string {
		return []string{test(t, r, name)}
	}}
}

func (c column) headings() []string {
	if len(c.parts) == 0 {
		return []string{c.title}
	}
	var headings []string
	for _, part := range c.parts {
		headings = append(headings, c.title+": "+part)
	}
	return headings
}

// failed returns the cells for a failed test.
func (c column) failed() []string {
	cells := make([]string, len(c.headings()))
	cells[0] = "no"
	return cells
}
