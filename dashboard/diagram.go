package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/dashboard/waitgraph"
)

// A diagram is a picture of a wait graph. A process is to the left of the processes it waits for,
// except in cycles.
type diagram struct {
	Width, Height int
	Nodes         []diagramNode
	Edges         []diagramEdge
	More          string // number of omitted processes

	column []int         // each node's column, counted from the left
	labels map[int][]int // the labels' vertical positions in each gap between columns
	lane   int           // the next line below the current band
}

type diagramNode struct {
	X, Y, W, H    int
	Text, Title   string
	Detail        string
	Link          string
	Class         string
	Many          bool // several processes
	TextX         int
	TextY, SmallY int
}

type diagramEdge struct {
	Path         string
	Label, Title string // without a label, the same node's other edge has it
	LabelX       int
	LabelY       int
	Class        string
	Marker       string // the arrow head's id
	Anchor       string // the label's anchor
}

// A diagram's sizes, in pixels.
const (
	nodeWidth, nodeHeight = 164, 46
	columnGap, rowGap     = 150, 30
	diagramMargin         = 16
	loopWidth             = 60  // for waits within a column
	labelWidth            = 130 // for 18 characters
	labelHeight           = 15
	laneHeight            = 26
	arrowGap              = 8 // between the lines to the left and to the right
)

// diagramOf returns nil if nobody waits.
func diagramOf(g waitgraph.Graph) *diagram {
	l, omitted := layoutOf(g)
	if len(l.nodes) == 0 {
		return nil
	}
	d := &diagram{labels: make(map[int][]int), Height: diagramMargin}
	if omitted > 0 {
		d.More = view.Plural(omitted, "more process is", "more processes are") + " in the table only."
	}
	d.placeNodes(l)
	for i, n := range l.nodes {
		d.Nodes[i].describe(g, n)
	}
	return d
}

// placeNodes places a band below the other.
func (d *diagram) placeNodes(l layout) {
	d.Nodes, d.column = make([]diagramNode, len(l.nodes)), make([]int, len(l.nodes))
	out := make([][]layoutEdge, len(l.nodes))
	for _, e := range l.edges {
		out[e.from] = append(out[e.from], e)
	}
	for first := 0; first < len(l.nodes); {
		after := first
		for after < len(l.nodes) && l.nodes[after].band == l.nodes[first].band {
			after++
		}
		d.placeBand(l, out, first, after)
		first = after
	}
	for _, n := range d.Nodes {
		d.Width = max(d.Width, n.X+n.W+diagramMargin)
	}
	d.Height += diagramMargin - rowGap
}

// placeBand places a band's nodes, and their edges. Each column is sorted by the height of the
// nodes that it waits for, so that few lines cross.
func (d *diagram) placeBand(l layout, out [][]layoutEdge, first, after int) {
	var columns [][]int // from the right
	for i := first; i < after; i++ {
		for len(columns) <= l.nodes[i].level {
			columns = append(columns, nil)
		}
		columns[l.nodes[i].level] = append(columns[l.nodes[i].level], i)
	}
	tallest := 0
	for _, column := range columns {
		tallest = max(tallest, len(column))
	}
	for level, column := range columns {
		height := make(map[int]int) // height of the nodes to the right that a node waits for
		for _, i := range column {
			sum, count := 0, 0
			for _, e := range out[i] {
				if l.nodes[e.to].level == level-1 {
					sum, count = sum+d.Nodes[e.to].Y, count+1
				}
			}
			height[i] = sum / max(count, 1)
		}
		slices.SortStableFunc(column, func(i, j int) int { return cmp.Compare(height[i], height[j]) })
		offset := (tallest - len(column)) * (nodeHeight + rowGap) / 2
		for row, i := range column {
			d.column[i] = len(columns) - 1 - level
			d.Nodes[i] = nodeAt(diagramMargin+d.column[i]*(nodeWidth+columnGap), d.Height+offset+row*(nodeHeight+rowGap))
		}
	}
	d.Height += tallest * (nodeHeight + rowGap)
	d.lane = d.Height - rowGap + laneHeight
	for i := first; i < after; i++ {
		d.placeEdges(out[i])
	}
	d.Height = max(d.Height, d.lane+rowGap-laneHeight)
}

func nodeAt(x, y int) diagramNode {
	return diagramNode{X: x, Y: y, W: nodeWidth, H: nodeHeight, Class: "node", TextX: x + 10, TextY: y + 20, SmallY: y + 36}
}

func (n *diagramNode) describe(g waitgraph.Graph, l layoutNode) {
	const characters, most = 21, 20
	if l.inCycle {
		n.Class = "node cycle"
	}
	p := g.Processes[l.processes[0]]
	n.Title, n.Link = processText(p), processLink(addressOf(p.Host, p.PID))
	n.Text, n.Detail = view.Shorten(n.Title, characters), fmt.Sprintf("holds %d, waits for %d", len(p.Holds), len(p.Waits))
	all := len(l.processes)
	if all == 1 {
		return
	}
	n.Many, n.Link = true, viewProcesses
	n.Text, n.Detail = fmt.Sprintf("%d processes", all), n.Text+", …"
	var titles []string
	for _, one := range l.processes[:min(all, most)] {
		titles = append(titles, processText(g.Processes[one]))
	}
	n.Title = strings.Join(titles, ", ")
	if all > most {
		n.Title += fmt.Sprintf(" and %d more", all-most)
	}
}

// placeEdges draws a node's waits. Waits for the same name share a label.
func (d *diagram) placeEdges(edges []layoutEdge) {
	labelled := make(map[string]bool)
	for _, e := range edges {
		edge := d.edgeOf(e)
		if edge.Label = ""; !labelled[edge.Title] {
			labelled[edge.Title] = true
			d.label(&edge, d.column[e.from])
		}
		d.Edges = append(d.Edges, edge)
	}
}

// label gives an edge a label, below the overlapping labels in its gap.
func (d *diagram) label(edge *diagramEdge, column int) {
	const characters = 18
	edge.Label = view.Shorten(edge.Title, characters)
	left := edge.LabelX
	if edge.Anchor == "end" {
		column--
		left -= labelWidth
	}
	for slices.ContainsFunc(d.labels[column], func(y int) bool { return max(y-edge.LabelY, edge.LabelY-y) < labelHeight }) {
		edge.LabelY++
	}
	d.labels[column] = append(d.labels[column], edge.LabelY)
	d.Width = max(d.Width, left+labelWidth+diagramMargin)
	d.Height = max(d.Height, edge.LabelY+rowGap)
}

// edgeOf draws a wait. Waits to the left are lower than waits to the right, so that both can be
// seen in a pair. A label is beside the waiter: below a line that goes up, otherwise above it.
func (d *diagram) edgeOf(e layoutEdge) diagramEdge {
	const bend, labelGap = columnGap / 2, 12
	from, to := d.Nodes[e.from], d.Nodes[e.to]
	fromY, toY := from.Y+nodeHeight/2-arrowGap, to.Y+nodeHeight/2-arrowGap
	edge := diagramEdge{Class: "edge", Marker: "arrow", Anchor: "start", Title: e.title()}
	if e.inCycle {
		edge.Class, edge.Marker = "edge cycle", "arrow-cycle"
	}
	edge.LabelX, edge.LabelY = from.X+nodeWidth+labelGap, fromY-6
	if toY < fromY {
		edge.LabelY = fromY + 15
	}
	right := from.X + nodeWidth
	switch steps := d.column[e.from] - d.column[e.to]; {
	case steps < 0:
		edge.Path = curve(right, fromY, right+bend, to.X-bend, to.X, toY)
	case steps == 0: // around the right side
		toY += 2 * arrowGap
		edge.Path = curve(right, fromY, right+loopWidth, right+loopWidth, right, toY)
	case steps == 1:
		fromY, toY = fromY+2*arrowGap, toY+2*arrowGap
		edge.Path = curve(from.X, fromY, from.X-bend, to.X+nodeWidth+bend, to.X+nodeWidth, toY)
		edge.LabelX, edge.LabelY, edge.Anchor = from.X-labelGap, fromY+14, "end"
	default:
		edge.Path = d.below(from, to)
		edge.LabelX, edge.LabelY, edge.Anchor = from.X-labelGap-loopWidth/2, d.lane-5, "end"
		d.lane += laneHeight
	}
	return edge
}

// below returns the way to a node further to the left: below the band, so that it crosses no node.
func (d *diagram) below(from, to diagramNode) string {
	const corner, away = 8, 20
	fromX, toX := from.X-away, to.X+nodeWidth+away
	fromY, toY := from.Y+nodeHeight/2+arrowGap, to.Y+nodeHeight/2+arrowGap
	return fmt.Sprintf("M%d %dQ%d %d %d %dV%dQ%d %d %d %dH%dQ%d %d %d %dV%dQ%d %d %d %d",
		from.X, fromY, fromX, fromY, fromX, fromY+corner, d.lane-corner, fromX, d.lane, fromX-corner, d.lane,
		toX+corner, toX, d.lane, toX, d.lane-corner, toY+corner, toX, toY, to.X+nodeWidth, toY)
}

// curve returns a curve between two points with the horizontal positions for its bends.
func curve(x, y, bend, endBend, endX, endY int) string {
	return fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x, y, bend, y, endBend, endY, endX, endY)
}
