package dashboard

import (
	"fmt"
	"slices"

	"github.com/dibslock/dibs/internal/view"
	"github.com/dibslock/dibs/internal/waitgraph"
)

// A diagram is a picture of a graph of waits. A process is to the left of those that it
// waits for, except in cycles.
type diagram struct {
	Width, Height int
	Nodes         []diagramNode
	Edges         []diagramEdge
	More          string // how many processes are not part of it
}

type diagramNode struct {
	X, Y, W, H    int
	Text, Title   string
	Detail        string
	Link          string
	Class         string
	TextX         int
	TextY, SmallY int
}

type diagramEdge struct {
	Path         string
	Label, Title string
	LabelX       int
	LabelY       int
	Class        string
	Marker       string // id of the arrow head
	Anchor       string // of the label
}

// The sizes of a diagram, in pixels.
const (
	nodeWidth, nodeHeight = 164, 46
	columnGap, rowGap     = 150, 30
	diagramMargin         = 16
	loopWidth             = 60  // of waits within a column
	labelWidth            = 130 // room to the right of the last column
	maxNodes              = 40
)

// diagramOf returns nil if nobody waits.
func diagramOf(g waitgraph.Graph) *diagram {
	l := layoutOf(g)
	if len(l.nodes) == 0 {
		return nil
	}
	d := &diagram{}
	if l.omitted > 0 {
		d.More = view.Plural(l.omitted, "more process is", "more processes are") + " in the table only."
	}
	last := slices.Max(l.level)
	columns := make([]int, last+1) // number of nodes
	for _, level := range l.level {
		columns[level]++
	}
	tallest := slices.Max(columns)
	d.Width = 2*diagramMargin + (last+1)*nodeWidth + last*columnGap + labelWidth
	d.Height = 2*diagramMargin + tallest*(nodeHeight+rowGap) - rowGap
	used := make([]int, last+1)
	for i, process := range l.nodes {
		level := l.level[i]
		offset := (tallest - columns[level]) * (nodeHeight + rowGap) / 2
		n := diagramNode{
			X: diagramMargin + (last-level)*(nodeWidth+columnGap), Y: diagramMargin + offset + used[level]*(nodeHeight+rowGap),
			W: nodeWidth, H: nodeHeight, Class: "node",
		}
		used[level]++
		n.TextX, n.TextY, n.SmallY = n.X+10, n.Y+20, n.Y+36
		n.describe(g.Processes[process])
		d.Nodes = append(d.Nodes, n)
	}
	for _, e := range l.edges {
		if e.inCycle {
			d.Nodes[e.from].Class, d.Nodes[e.to].Class = "node cycle", "node cycle"
		}
		d.Edges = append(d.Edges, edgeOf(e, d.Nodes[e.from], d.Nodes[e.to]))
	}
	return d
}

func (n *diagramNode) describe(p waitgraph.Process) {
	const characters = 21
	n.Title, n.Link = processText(p), processLink(addressOf(p.Host, p.PID))
	n.Text = view.Shorten(n.Title, characters)
	n.Detail = fmt.Sprintf("holds %d, waits for %d", len(p.Holds), len(p.Waits))
}

// edgeOf draws a wait. Waits to the left are lower than those to the right, so that both of
// a pair can be seen.
func edgeOf(e layoutEdge, from, to diagramNode) diagramEdge {
	const characters, lower, bend, labelGap = 18, 8, columnGap / 2, 12
	fromY, toY := from.Y+nodeHeight/2-lower, to.Y+nodeHeight/2-lower
	edge := diagramEdge{Class: "edge", Marker: "arrow", Anchor: "start", Title: e.title(), Label: view.Shorten(e.title(), characters)}
	if e.inCycle {
		edge.Class, edge.Marker = "edge cycle", "arrow-cycle"
	}
	startX, endX, startBend, endBend := from.X+nodeWidth, to.X, bend, -bend
	switch {
	case to.X == from.X: // around the right side
		endX, startBend, endBend = to.X+nodeWidth, loopWidth, loopWidth
		toY += 2 * lower
	case to.X < from.X:
		startX, endX, startBend, endBend = from.X, to.X+nodeWidth, -bend, bend
		fromY, toY = fromY+2*lower, toY+2*lower
	}
	edge.Path = fmt.Sprintf("M%d %dC%d %d %d %d %d %d", startX, fromY, startX+startBend, fromY, endX+endBend, toY, endX, toY)
	// Beside the waiter, labels of different waits overlap least. A straight line is above or
	// below its label.
	edge.LabelX, edge.LabelY = startX+labelGap, fromY+(toY-fromY)/5-5
	if to.X < from.X {
		edge.LabelX, edge.LabelY, edge.Anchor = startX-labelGap, edge.LabelY+18, "end"
	}
	return edge
}
