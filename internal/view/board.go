package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/waitgraph"
)

// The terminal sequences of a frame.
const (
	home      = "\x1b[H"
	endLine   = "\x1b[m\x1b[K"
	endScreen = "\x1b[J"
	reverse   = "\x1b[7m"
	bold      = "\x1b[1m"
	red       = "\x1b[31m"
)

// A Board is the content of the screen of top.
type Board struct {
	Location string        // of the store
	Every    time.Duration // pause between two polls
	Colours  bool          // the terminal has colours

	storeError string    // error of the last poll, or ""
	at         time.Time // of the last poll; zero before the first one
	names      []State
	cycles     []string // processes that wait for each other
	sortIndex  int      // index into Sortings
	chosen     string   // the selected name
	row        int      // index of the selected name
	first      int      // index of the first visible row
	page       int      // number of visible rows
}

// Update shows the result of a poll: the states, or why there are none.
func (b *Board) Update(states []driver.State, err error, at time.Time) {
	b.storeError, b.at = "", at
	if err != nil {
		b.storeError = Safe(strings.TrimPrefix(err.Error(), "dibs: "))
		return
	}
	b.names = StatesOf(states, at)
	b.cycles = nil
	graph := waitgraph.Of(states)
	for _, c := range graph.Cycles {
		b.cycles = append(b.cycles, Cycle(graph, c))
	}
	b.sort()
}

// sort sorts the names. The selection stays on its name, or on its row if the name is
// gone.
func (b *Board) sort() {
	slices.SortStableFunc(b.names, Orders["name"])
	slices.SortStableFunc(b.names, Sortings()[b.sortIndex].Order)
	if i := slices.IndexFunc(b.names, func(n State) bool { return n.Name == b.chosen }); i >= 0 {
		b.row = i
	}
	b.move(0)
}

func (b *Board) move(by int) {
	b.row = max(min(b.row+by, len(b.names)-1), 0)
	b.chosen = ""
	if len(b.names) > 0 {
		b.chosen = b.names[b.row].Name
	}
}

// Press handles a key that moves the selection or changes the order, as sent by a terminal.
// It ignores other keys.
func (b *Board) Press(key string) {
	switch key {
	case "j", "\x1b[B", "\x1bOB":
		b.move(1)
	case "k", "\x1b[A", "\x1bOA":
		b.move(-1)
	case " ", "\x1b[6~":
		b.move(b.page)
	case "b", "\x1b[5~":
		b.move(-b.page)
	case "g", "\x1b[H", "\x1b[1~", "\x1bOH":
		b.move(-len(b.names))
	case "G", "\x1b[F", "\x1b[4~", "\x1bOF":
		b.move(len(b.names))
	case "s":
		b.sortIndex = (b.sortIndex + 1) % len(Sortings())
		b.sort()
	}
}

// Draw returns the output for one frame.
func (b *Board) Draw(now time.Time, width, height int) string {
	var out strings.Builder
	out.WriteString(home)
	lines := b.lines(now, width, height)
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			out.WriteString("\r\n")
		}
		if line.style != red || b.Colours {
			out.WriteString(line.style)
		}
		out.WriteString(Cut(line.text, width) + endLine)
	}
	return out.String() + endScreen
}

type styled struct{ style, text string }

// lines returns the header, the names, the details of the selected name if there is room,
// and the keys.
func (b *Board) lines(now time.Time, width, height int) []styled {
	const roomy, most = 16, 12
	lines := b.head()
	var detail []string
	if height >= roomy && len(b.names) > 0 {
		detail = strings.Split(strings.TrimSuffix(b.names[b.row].Text(now, width), "\n"), "\n")
		detail = append([]string{""}, detail[:min(len(detail), most, height/3)]...)
	}
	t := b.table(now).Fit(width, optional(b.names)...).Lines()
	lines = append(lines, styled{reverse, t[0]})
	room := max(height-len(lines)-len(detail)-1, 1)
	b.first = max(min(b.first, b.row, len(b.names)-room), b.row-room+1, 0)
	for i := b.first; i < min(b.first+room, len(b.names)); i++ {
		style := ""
		if i == b.row {
			style = bold
		}
		lines = append(lines, styled{style, marked(i == b.row, t[i+1])})
	}
	for len(lines)+len(detail)+1 < height {
		lines = append(lines, styled{})
	}
	for _, text := range detail {
		lines = append(lines, styled{"", text})
	}
	b.page = room
	return append(lines, styled{reverse, "q quit  j k move  space b page  g G ends  s sort"})
}

// marked adds a visible mark, for terminals without bold text.
func marked(mark bool, row string) string {
	if mark {
		return ">" + row[1:]
	}
	return row
}

func (b *Board) head() []styled {
	c := CountsOf(b.names)
	state := styled{"", ""}
	switch {
	case b.at.IsZero():
		state.text = "loading …"
	case b.storeError != "":
		state = styled{red, "the store does not answer, showing the last state: " + b.storeError}
	case len(b.cycles) > 0:
		state = styled{red, b.cycles[0]}
	case len(b.names) == 0:
		state.text = "nothing is held"
	}
	counts := fmt.Sprintf("held %d   waiting %d   longest wait %s   never expiring %d   sorted by %s",
		c.Held, c.Waiting, Brief(c.Longest), c.Never, Sortings()[b.sortIndex].By)
	return []styled{
		{bold, fmt.Sprintf("dibs top   %s   every %v   %s", b.Location, b.Every, clock(b.at))},
		{"", counts},
		state,
	}
}

func clock(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.Local().Format(time.TimeOnly)
}

func (b *Board) table(now time.Time) (t Table) {
	t.Row("  NAME", "KIND", "HOLDER", "TTL", "HELD", "WAIT", "LONGEST", "FENCE")
	for _, n := range b.names {
		r := n.Row(now)
		t.Row("  "+r.Name, orDash(r.Kind), orDash(r.Holder), orDash(r.TTL), orDash(r.Held), strconv.Itoa(r.Wait), orDash(r.Longest), orDash(r.Fence))
	}
	return t
}
