package dashboard

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// A spark line's size: a column for each minute in an hour.
const (
	sparkColumns = 60
	sparkStep    = 2
	sparkHeight  = 24
)

// A spark is a figure over the last hour.
type spark struct{ Label, Most, Path string }

// sparksOf returns a history's figures, or nil if it is empty.
func sparksOf(points []point, now time.Time) []spark {
	if len(points) == 0 {
		return nil
	}
	count := func(of func(point) int) func(point) float64 { return func(p point) float64 { return float64(of(p)) } }
	whole := func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }
	figure := func(label string, of func(point) float64, text func(float64) string) spark {
		columns, most := sparkColumnsOf(points, now, of)
		return spark{label, text(most), sparkPath(columns, most)}
	}
	return []spark{
		figure("held", count(func(p point) int { return p.Held }), whole),
		figure("waiting", count(func(p point) int { return p.Waiting }), whole),
		figure("longest wait", func(p point) float64 { return p.Longest.Seconds() }, func(s float64) string {
			return orNothing(view.Brief(time.Duration(s*float64(time.Second))), s > 0)
		}),
		figure("grants seen a second", point.rate, func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }),
	}
}

// sparkColumnsOf returns each minute's largest value, where the last minute is now's, and the
// largest overall. A minute without points has -1.
func sparkColumnsOf(points []point, now time.Time, of func(point) float64) (columns [sparkColumns]float64, most float64) {
	for i := range columns {
		columns[i] = -1
	}
	minute := func(at time.Time) int { return int(at.Unix() / int64(time.Minute/time.Second)) }
	for _, p := range points {
		i := sparkColumns - 1 - (minute(now) - minute(p.At))
		if i < 0 || i >= sparkColumns {
			continue
		}
		columns[i] = max(columns[i], of(p))
		most = max(most, columns[i])
	}
	return columns, most
}

// sparkPath draws a bar for each known minute, at least one unit high.
func sparkPath(columns [sparkColumns]float64, most float64) string {
	var path strings.Builder
	for i, v := range columns {
		if v < 0 {
			continue
		}
		high := 1
		if most > 0 {
			high += int(v * (sparkHeight - 1) / most)
		}
		fmt.Fprintf(&path, "M%d %dv-%d", i*sparkStep+1, sparkHeight, high)
	}
	return path.String()
}

// sparkNodes returns the last hour's figures, or nothing. Each is a line, because changes in a
// fragment are found by lines.
func sparkNodes(all []spark) g.Node {
	if len(all) == 0 {
		return nil
	}
	return h.Div(h.Class("sparks"), h.Aria("label", "The last hour"), h.Role("group"), newline, h.Div(g.Text("last hour")), newline, rows(all, spark.node))
}

func (s spark) node() g.Node {
	label := s.Label + " in the last hour, most " + s.Most
	return h.Div(g.Attr("data-spark", s.Label), h.Span(g.Text(s.Label)), g.Text(" "),
		g.El("svg", h.Class("spark"), g.Attr("viewBox", fmt.Sprintf("0 0 %d %d", sparkColumns*sparkStep, sparkHeight)),
			number("width", sparkColumns*sparkStep), number("height", sparkHeight), h.Role("img"), h.Aria("label", label),
			g.El("path", g.Attr("d", s.Path))),
		g.Text(" "), h.Small(g.Text("most "+s.Most)))
}
