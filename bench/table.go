package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// figures are a run's results by column name.
type figures map[string]float64

// A column is a figure in each row.
type column struct {
	name   string
	digits int                          // after the decimal point
	join   func(runs []float64) float64 // combines the runs into a single figure
}

// A row is a peer in a group. Rows in a group have the same load.
type row struct {
	group string
	peer  string
	runs  []figures
}

// value combines the runs' figures. It ignores runs without this figure. If no run has it, the
// value is NaN.
func (r *row) value(c column) float64 {
	var values []float64
	for _, run := range r.runs {
		if v, ok := run[c.name]; ok && !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return c.join(values)
}

// A table is a printed table.
type table struct {
	name    string
	about   []string // explanations for the reader
	load    string   // the load's name, by which rows are grouped, or ""
	columns []column
	rows    []*row
	notes   []string // failures and warnings
	server  string   // version; default: the fixture's
	bars    []bar
	ours    string // the peer to which the bars apply; default: dibs
}

// row returns a peer's row. It adds the row if it is missing.
func (t *table) row(group, peer string) *row {
	for _, r := range t.rows {
		if r.group == group && r.peer == peer {
			return r
		}
	}
	r := &row{group: group, peer: peer}
	t.rows = append(t.rows, r)
	return r
}

// column returns the column with a name. It panics if there is none.
func (t *table) column(name string) column {
	for _, c := range t.columns {
		if c.name == name {
			return c
		}
	}
	panic("no column " + name)
}

// addRemark adds a remark about a run, unless the table already contains it.
func (t *table) addRemark(group, peer, text string) {
	if text == "" {
		return
	}
	note := fmt.Sprintf("%s, %s %s: %s", peer, t.load, group, text)
	if !slices.Contains(t.notes, note) {
		t.notes = append(t.notes, note)
	}
}

func (t *table) print(out io.Writer, markdown bool, machine string) {
	cells := t.cells()
	if markdown {
		fmt.Fprintf(out, "### %s\n\n%s\n\n", t.name, strings.Join(t.about, "\n"))
		printMarkdown(out, cells, t.texts())
		fmt.Fprintln(out)
	} else {
		fmt.Fprintf(out, "== %s\n%s\n\n", t.name, strings.Join(t.about, "\n"))
		printAligned(out, cells, t.texts())
		fmt.Fprintln(out)
	}
	for _, note := range t.notes {
		fmt.Fprintf(out, "! %s\n", note)
	}
	fmt.Fprintf(out, "(%s)\n\n", machine)
}

// texts returns the number of text columns, which are aligned to the left.
func (t *table) texts() int {
	if t.load == "" {
		return 1
	}
	return 2
}

// cells returns the table as text, with the header first. Only the first row in a group contains
// the group's name.
func (t *table) cells() [][]string {
	head := []string{"peer"}
	if t.load != "" {
		head = []string{t.load, "peer"}
	}
	for _, c := range t.columns {
		head = append(head, c.name)
	}
	cells := [][]string{head}
	group := ""
	for _, r := range t.rows {
		var line []string
		switch {
		case t.load == "":
		case r.group == group:
			line = append(line, "")
		default:
			group = r.group
			line = append(line, group)
		}
		line = append(line, r.peer)
		for _, c := range t.columns {
			line = append(line, format(r.value(c), c.digits))
		}
		cells = append(cells, line)
	}
	return cells
}

func format(v float64, digits int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

func printAligned(out io.Writer, cells [][]string, texts int) {
	widths := widthsOf(cells)
	for n, line := range cells {
		if n > 1 && texts > 1 && line[0] != "" {
			fmt.Fprintln(out)
		}
		padded := make([]string, len(line))
		for i, cell := range line {
			padded[i] = pad(cell, widths[i], i < texts)
		}
		fmt.Fprintln(out, strings.TrimRight(strings.Join(padded, "  "), " "))
	}
}

func printMarkdown(out io.Writer, cells [][]string, texts int) {
	for n, line := range cells {
		fmt.Fprintf(out, "| %s |\n", strings.Join(line, " | "))
		if n > 0 {
			continue
		}
		for i := range line {
			if i < texts {
				fmt.Fprint(out, "|---")
			} else {
				fmt.Fprint(out, "|---:")
			}
		}
		fmt.Fprintln(out, "|")
	}
}

func widthsOf(cells [][]string) []int {
	widths := make([]int, len(cells[0]))
	for _, line := range cells {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

func pad(cell string, width int, left bool) string {
	space := strings.Repeat(" ", width-utf8.RuneCountInString(cell))
	if left {
		return cell + space
	}
	return space + cell
}
