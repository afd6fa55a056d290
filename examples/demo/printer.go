package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A printer prints the scenes in aligned columns. It uses colours on a terminal only, and
// not with NO_COLOR or TERM=dumb.
type printer struct {
	out    io.Writer
	colour bool
}

const (
	indent = "  "
	labels = 18 // the first column's width
	column = 14 // the other columns' width
	width  = labels + 4*column
)

type paint string

const (
	plain paint = ""
	bold  paint = "1"
	dim   paint = "2"
	red   paint = "31"
	green paint = "32"
)

func newPrinter(out io.Writer, env func(string) string) *printer {
	return &printer{out: out, colour: env("NO_COLOR") == "" && env("TERM") != "dumb" && isTerminal(out)}
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (p *printer) paint(text string, with paint) string {
	if !p.colour || with == plain {
		return text
	}
	return "\x1b[" + string(with) + "m" + text + "\x1b[0m"
}

func (p *printer) line(parts ...string) {
	fmt.Fprintln(p.out, strings.TrimRight(indent+strings.Join(parts, ""), " "))
}

func (p *printer) header(storeName, summary string) {
	p.line()
	p.line(p.paint("dibs", bold), p.paint(" · "+storeName+" · "+summary, dim))
}

func (p *printer) scene(n int, title, format string, args ...any) {
	p.line()
	p.line()
	what := fmt.Sprintf(format, args...)
	heading := strconv.Itoa(n) + "  " + title
	p.line(p.paint(heading, bold), left("", width-runes(heading)-runes(what)), p.paint(what, dim))
	p.line(p.paint(strings.Repeat("─", width), dim))
}

func (p *printer) columns(names ...string) {
	text := left("", labels)
	for _, name := range names {
		text += right(name, column)
	}
	p.line(p.paint(text, dim))
}

func (p *printer) row(label string, cells ...cell) {
	parts := []string{left(label, labels)}
	for _, c := range cells {
		parts = append(parts, p.paint(right(c.text, column), c.paint))
	}
	p.line(parts...)
}

// value prints a value below a table, in its last column.
func (p *printer) value(label string, c cell) {
	p.line(left(label, width-column), p.paint(right(c.text, column), c.paint))
}

// eventColours contains the events' colours.
var eventColours = map[string]paint{"notified": bold, "rejected": green}

func (p *printer) event(at time.Duration, holder, text, kind string) {
	clock := fmt.Sprintf("%7.3f s", at.Seconds())
	p.line(p.paint(clock, dim), "   ", p.paint(holder, bold), "  ", p.paint(text, eventColours[kind]))
}

func (p *printer) footer(text string) {
	p.line()
	p.line()
	p.line(p.paint(text, green))
	p.line()
}

// A cell is a value in a table.
type cell struct {
	text  string
	paint paint
}

// markBad colours a value red if it is bad, or else green.
func (c cell) markBad(is bool) cell {
	c.paint = green
	if is {
		c.paint = red
	}
	return c
}

func count(n int64) cell { return cell{text: strconv.FormatInt(n, 10)} }

func pair(a, b int) cell { return cell{text: fmt.Sprintf("%d and %d", a, b)} }

func yes(is bool) cell {
	c := cell{text: "no"}
	if is {
		c.text = "yes"
	}
	return c.markBad(!is)
}

// span formats a duration with two or three digits.
func span(d time.Duration) cell {
	switch us := float64(d) / float64(time.Microsecond); {
	case d.Abs() < time.Millisecond:
		return cell{text: fmt.Sprintf("%.0f µs", us)}
	case d.Abs() < 10*time.Millisecond:
		return cell{text: fmt.Sprintf("%.1f ms", us/1e3)}
	case d.Abs() < time.Second:
		return cell{text: fmt.Sprintf("%.0f ms", us/1e3)}
	}
	return cell{text: fmt.Sprintf("%.3g s", d.Seconds())}
}

func left(text string, n int) string { return text + space(n-runes(text)) }

func right(text string, n int) string { return space(n-runes(text)) + text }

func space(n int) string { return strings.Repeat(" ", max(n, 0)) }

func runes(text string) int { return utf8.RuneCountInString(text) }
