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

// safe returns a text as it may be shown: a name is made by whoever can lock it, and must
// not be able to write to the terminal. What cannot be printed makes it a quoted string.
func safe(text string) string {
	for _, r := range text {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return strconv.QuoteToGraphic(text)
		}
	}
	return text
}

// A table is lines of cells. The first is the head.
type table [][]string

func (t *table) row(cells ...string) { *t = append(*t, cells) }

// lines returns the table with its columns aligned.
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

// fit returns the table with lines of at most width letters, as far as that can be. The
// columns that may go do so first, in their order, and then names and holders that are too
// long are shortened: whoever chooses a name cannot hide what is known of the others.
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

// elastic reports whether the cells below a head may be shortened.
func elastic(head string) bool {
	return slices.Contains([]string{"NAME", "HOLDER", "WAITER"}, strings.TrimSpace(head))
}

// Of a name as many letters are left, at least: shortest, and readable as long as there is
// a column that may go.
const shortest, readable = 12, 24

// width is how wide a table is if no elastic column is wider than a limit.
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

// limit is the largest one for elastic columns with which a table is not too wide.
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

// shorten takes letters out of the middle of a text: names often differ at the end.
func shorten(text string, limit int) string {
	r := []rune(text)
	if len(r) <= limit || limit < 2 {
		return text
	}
	front := (limit - 1) / 2
	return string(r[:front]) + "…" + string(r[len(r)-(limit-1-front):])
}

// width is how many letters fit on a line of stdout, and zero if it is no terminal.
func (a *app) width() int {
	if !terminal(a.out) {
		return 0
	}
	return widthOf(a.out)
}

// brief is a duration as people say it: two units at most.
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

// or returns a text, or a dash for none.
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

// plural counts things.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// put writes to stdout. Who reads it may have gone, as head(1) does: that ends dibs as
// SIGPIPE would.
func (a *app) print(text string) error { return exitOnEPIPE(io.WriteString(a.out, text)) }

// putJSON writes a value to stdout, as one line of JSON.
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
