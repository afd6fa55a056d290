package loadsim

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// A Curve is a run in a graph.
type Curve struct {
	Name, Color string
	Points      []Point
}

// A Point is the state at a given time in a run.
type Point struct {
	At   time.Duration
	Busy float64 // share of the processor used since the last point
	Held int     // leases
}

// ReadCSV returns the points written by WriteCSV.
func ReadCSV(r io.Reader) (points []Point, err error) {
	lines := bufio.NewScanner(r)
	if !lines.Scan() || lines.Text() != columns {
		return nil, fmt.Errorf("the first line is %q, want %q", lines.Text(), columns)
	}
	at := make(map[string]int)
	for i, column := range strings.Split(columns, ",") {
		at[column] = i
	}
	last := time.Duration(0)
	for lines.Scan() {
		var fields []int
		for text := range strings.SplitSeq(lines.Text(), ",") {
			n, err := strconv.Atoi(text)
			if err != nil {
				return nil, err
			}
			fields = append(fields, n)
		}
		if len(fields) != len(at) {
			return nil, fmt.Errorf("%d fields, want %d: %q", len(fields), len(at), lines.Text())
		}
		p := Point{At: time.Duration(fields[at["ms"]]) * time.Millisecond, Held: fields[at["held"]]}
		p.Busy = float64(time.Duration(fields[at["work_us"]])*time.Microsecond) / float64(p.At-last)
		last = p.At
		points = append(points, p)
	}
	return points, lines.Err()
}

// A graph's geometry, in pixels: two panels, stacked.
const (
	width, panelHeight, gap  = 720, 150, 46
	left, right, top, bottom = 62, 16, 72, 40
	height                   = top + 2*panelHeight + gap + bottom
)

// Graph draws the processor use and the leases over time, as SVG. Each event's time is shaded.
func Graph(title string, curves []Curve, events []Event) string {
	var b strings.Builder
	whole, leases := time.Second, 1
	for _, c := range curves {
		for _, p := range c.Points {
			whole, leases = max(whole, p.At), max(leases, p.Held)
		}
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12" fill="#333">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="22" font-size="14" font-weight="bold">%s</text>`+"\n", left, title)
	x := left
	for _, c := range curves {
		fmt.Fprintf(&b, `<rect x="%d" y="34" width="18" height="4" fill="%s"/><text x="%d" y="41">%s</text>`+"\n", x, c.Color, x+24, c.Name)
		x += 44 + 7*len(c.Name)
	}
	percent := func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }
	number := func(v float64) string { return fmt.Sprintf("%.0f", v) }
	panel{&b, top, whole, "processor of the server in use", 1, percent}.draw(curves, events, func(p Point) float64 { return p.Busy })
	panel{&b, top + panelHeight + gap, whole, "leases held", float64(leases), number}.draw(curves, events, func(p Point) float64 { return float64(p.Held) })
	b.WriteString("</svg>\n")
	return b.String()
}

// A panel is a diagram in a graph.
type panel struct {
	to    *strings.Builder
	y     int // upper edge
	whole time.Duration
	label string
	most  float64 // the value at the upper edge
	text  func(float64) string
}

func (p panel) xAt(t time.Duration) float64 {
	return left + float64(t)/float64(p.whole)*(width-left-right)
}

func (p panel) yAt(v float64) float64 {
	return float64(p.y) + (1-min(v/p.most, 1))*panelHeight
}

func (p panel) draw(curves []Curve, events []Event, value func(Point) float64) {
	for _, e := range events {
		if e.For > 0 {
			fmt.Fprintf(p.to, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#ddd"/>`+"\n", p.xAt(e.At), p.y, p.xAt(e.end())-p.xAt(e.At), panelHeight)
		}
	}
	fmt.Fprintf(p.to, `<text x="%d" y="%d">%s</text>`+"\n", left, p.y-7, p.label)
	for _, part := range []float64{0, 0.5, 1} {
		y := p.yAt(part * p.most)
		fmt.Fprintf(p.to, `<path d="M%d %.1fH%d" stroke="#ccc"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, y, width-right, left-6, y+4, p.text(part*p.most))
	}
	for t := time.Duration(0); t <= p.whole; t += 10 * time.Second {
		fmt.Fprintf(p.to, `<text x="%.1f" y="%d" text-anchor="middle">%.0f s</text>`+"\n", p.xAt(t), p.y+panelHeight+17, t.Seconds())
	}
	for _, c := range curves {
		var path strings.Builder
		for i, point := range c.Points {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], p.xAt(point.At), p.yAt(value(point)))
		}
		fmt.Fprintf(p.to, `<path d="%s" fill="none" stroke="%s" stroke-width="1.8"/>`+"\n", path.String(), c.Color)
	}
}
