package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"
)

// safe returns a text that is safe to print on a terminal. Anybody who can lock a name
// can choose it, so it must not contain control sequences. A text with unprintable
// characters is returned as a quoted string.
func safe(text string) string {
	for _, r := range text {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return strconv.QuoteToGraphic(text)
		}
	}
	return text
}

// A table is a list of rows of cells. The first row is the header.
type table [][]string

func (t *table) row(cells ...string) { *t = append(*t, cells) }

// lines returns the rows with aligned columns.
func (t table) lines() []string {
	if len(t) == 0 {
		return nil
	}
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, cells := range t {
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	w.Flush()
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

func (t table) String() string {
	if len(t) == 0 {
		return ""
	}
	return strings.Join(t.lines(), "\n") + "\n"
}

// fit returns the table with lines of width columns at most, as far as possible. It first
// drops the columns of mayGo, in that order, and then shortens long names and holders. So
// a long name cannot push the other rows' data off the screen.
func (t table) fit(width int, mayGo ...string) table {
	if width <= 0 || len(t) == 0 {
		return t
	}
	for _, head := range mayGo {
		least := readable
		if elastic(head) {
			least = shortest
		}
		if t.width(least) > width {
			t = t.without(head)
		}
	}
	limit := t.limit(width)
	fitted := make(table, len(t))
	for i, cells := range t {
		fitted[i] = slices.Clone(cells)
		for j := range cells {
			if elastic(t[0][j]) {
				fitted[i][j] = shorten(cells[j], limit)
			}
		}
	}
	return fitted
}

// elastic reports whether the cells of a column may be shortened.
func elastic(head string) bool {
	return slices.Contains([]string{"NAME", "HOLDER", "WAITER"}, strings.TrimSpace(head))
}

// The least number of characters that is left of a name: shortest, and readable while
// there are columns to drop.
const shortest, readable = 12, 24

// width returns the width of the table if no elastic column is wider than limit.
func (t table) width(limit int) (sum int) {
	const gap = 2
	for j, head := range t[0] {
		widest := 0
		for _, cells := range t {
			widest = max(widest, utf8.RuneCountInString(cells[j]))
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
func (t table) limit(width int) int {
	limit := max(width, shortest)
	for limit > shortest && t.width(limit) > width {
		limit--
	}
	return limit
}

// without returns the table without a column.
func (t table) without(head string) table {
	at := slices.IndexFunc(t[0], func(h string) bool { return strings.TrimSpace(h) == head })
	if at < 0 {
		return t
	}
	less := make(table, len(t))
	for i, cells := range t {
		less[i] = slices.Delete(slices.Clone(cells), at, at+1)
	}
	return less
}

// shorten removes characters from the middle of a text: names often differ at the end.
func shorten(text string, limit int) string {
	r := []rune(text)
	if len(r) <= limit || limit < 2 {
		return text
	}
	front := (limit - 1) / 2
	return string(r[:front]) + "…" + string(r[len(r)-(limit-1-front):])
}

// width returns the width of stdout in columns, or zero if it is not a terminal.
func (a *app) width() int {
	if !terminal(a.out) {
		return 0
	}
	return widthOf(a.out)
}

// brief formats a duration for people, with two units at most. A negative one is "never".
func brief(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "never"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
}

// orDash returns a text, or "-" if it is empty.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func number(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

// plural returns a number with its noun.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// print writes to stdout. If the reader has closed it, as head(1) does, the error makes
// dibs exit as with SIGPIPE.
func (a *app) print(text string) error { return exitOnEPIPE(io.WriteString(a.out, text)) }

// printJSON writes a value to stdout as one line of JSON.
func (a *app) printJSON(v any) error { return exitOnEPIPE(0, printLine(a.out, v)) }

func exitOnEPIPE(_ int, err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return exitWith(exitSignal+int(syscall.SIGPIPE), nil)
	}
	return err
}

// colours reports whether stdout may be coloured.
func (a *app) colours() bool {
	return a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb" && terminal(a.out)
}
