package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/dashboard/waitgraph"
	"github.com/dibslock/dibs/driver"
)

// The terminal sequences in a frame.
const (
	home      = "\x1b[H"
	newLine   = "\x1b[K" // before the line: after a full line it would erase the last character
	endLine   = "\x1b[m"
	endScreen = "\x1b[J"
	reverse   = "\x1b[7m"
	bold      = "\x1b[1m"
	red       = "\x1b[31m"
)

// A Board is the content of top's screen.
type Board struct {
	Location string        // the store's location
	Every    time.Duration // pause between two polls
	Colours  bool          // the terminal has colours

	storeError string    // the last poll's error, or ""
	at         time.Time // when the last poll was made; zero before the first
	names      []Summary
	states     map[string]driver.State // by name; if there are many names, not of all
	suspects   waitgraph.Suspects
	cycles     []styled // processes that wait for each other
	sortIndex  int      // index into Sortings
	chosen     string   // the selected name
	row        int      // the selected name's index
	first      int      // the first visible row's index
	page       int      // number of visible rows
}

// Update shows a poll's result: the states, or why there are none.
func (b *Board) Update(states []driver.State, err error, at time.Time) {
	b.UpdateMany(SummariesOf(states), states, err, at)
}

// UpdateMany shows a poll over many names, which does not contain all states.
func (b *Board) UpdateMany(names []Summary, states []driver.State, err error, at time.Time) {
	b.storeError, b.at = "", at
	if err != nil {
		b.storeError = Safe(strings.TrimPrefix(err.Error(), "dibs: "))
		return
	}
	b.names, b.states = slices.Clone(names), make(map[string]driver.State, len(states))
	for _, s := range states {
		b.states[s.Name] = s
	}
	b.cycles = nil
	graph := waitgraph.Of(states)
	for _, c := range b.suspects.Shown(graph) {
		style := ""
		if c.Sure {
			style = red
		}
		b.cycles = append(b.cycles, styled{style, Cycle(graph, c)})
	}
	b.sort()
}

// Visible returns the names in the drawn rows.
func (b *Board) Visible() (names []string) {
	for _, n := range b.names[min(b.first, len(b.names)):min(b.first+b.page, len(b.names))] {
		names = append(names, n.Name)
	}
	return names
}

// sort sorts the names. The selection stays on its name, or on its row if the name is
// gone.
func (b *Board) sort() {
	Orders[0].Sort(b.names)
	Sortings()[b.sortIndex].Sort(b.names)
	if i := slices.IndexFunc(b.names, func(n Summary) bool { return n.Name == b.chosen }); i >= 0 {
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

// Press handles a key that moves the selection or changes the order, as sent by a terminal. It
// ignores other keys.
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

// Draw returns the output for a frame.
func (b *Board) Draw(now time.Time, width, height int) string {
	var out strings.Builder
	out.WriteString(home)
	lines := b.lines(now, width, height)
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			out.WriteString("\r\n")
		}
		out.WriteString(newLine)
		if line.style != red || b.Colours {
			out.WriteString(line.style)
		}
		out.WriteString(Cut(line.text, width) + endLine)
	}
	if len(lines) < height {
		out.WriteString("\r\n" + endScreen)
	}
	return out.String()
}

type styled struct{ style, text string }

// lines returns the header, the names, the selected name's details if there is room, and the keys.
func (b *Board) lines(now time.Time, width, height int) []styled {
	lines := b.head()
	detail := b.detail(now, width, height)
	room := max(height-len(lines)-1-len(detail)-1, 1)
	b.first = max(min(b.first, b.row, len(b.names)-room), b.row-room+1, 0)
	b.page = room
	shown := b.names[b.first:min(b.first+room, len(b.names))]
	t := b.table(shown, now).Fit(width, b.optional(shown)...).Lines()
	lines = append(lines, styled{reverse, t[0]})
	for i := range shown {
		chosen, style := b.first+i == b.row, ""
		if chosen {
			style = bold
		}
		lines = append(lines, styled{style, marked(chosen, t[i+1])})
	}
	for len(lines)+len(detail)+1 < height {
		lines = append(lines, styled{})
	}
	for _, text := range detail {
		lines = append(lines, styled{"", text})
	}
	return append(lines, styled{reverse, "q quit  j k move  space b page  g G ends  s sort"})
}

// detail returns the lines about the selected name.
func (b *Board) detail(now time.Time, width, height int) []string {
	const roomy, most = 16, 12
	if height < roomy || len(b.names) == 0 {
		return nil
	}
	state, known := b.states[b.names[b.row].Name]
	if !known {
		return nil
	}
	lines := strings.Split(strings.TrimSuffix(StateOf(state, now).Text(now, width), "\n"), "\n")
	return append([]string{""}, lines[:min(len(lines), most, height/3)]...)
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
	case len(b.names) == 0:
		state.text = "nothing is held"
	}
	counts := fmt.Sprintf("held %d   waiting %d   longest wait %s   never expiring %d   sorted by %s",
		c.Held, c.Waiting, Brief(c.Longest), c.Never, Sortings()[b.sortIndex].By)
	lines := []styled{
		{bold, fmt.Sprintf("dibs top   %s   every %v   %s", b.Location, b.Every, clock(b.at))},
		{"", counts},
	}
	if state.text != "" || len(b.cycles) == 0 {
		return append(lines, state)
	}
	return append(lines, b.cycleLines()...)
}

// cycleLines returns the first cycles, and how many there are beside them.
func (b *Board) cycleLines() []styled {
	const most = 3
	lines := slices.Clone(b.cycles[:min(len(b.cycles), most)])
	if more := len(b.cycles) - most; more > 0 {
		lines = append(lines, styled{"", Plural(more, "more cycle", "more cycles") + " of processes that wait for each other"})
	}
	return lines
}

func clock(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.Local().Format(time.TimeOnly)
}

func (b *Board) table(names []Summary, now time.Time) (t Table) {
	t.Row("  NAME", "KIND", "HOLDER", "TTL", "HELD", "WAIT", "LONGEST", "FENCE")
	for _, n := range names {
		r := b.rowOf(n, now)
		t.Row("  "+r.Name, orDash(r.Kind), orDash(r.Holder), orDash(r.TTL), orDash(r.Held), strconv.Itoa(r.Wait), orDash(r.Longest), orDash(r.Fence))
	}
	return t
}

// rowOf returns a name's row. A name just scrolled to may not have been read yet.
func (b *Board) rowOf(n Summary, now time.Time) Row {
	if state, known := b.states[n.Name]; known {
		return StateOf(state, now).Row(now)
	}
	return Row{Name: Safe(n.Name), Holder: "…", Wait: n.Waiting}
}

// optional returns the columns to omit if there is no room.
func (b *Board) optional(names []Summary) []string {
	return optionalIf(slices.ContainsFunc(names, func(n Summary) bool { return n.Foreign }))
}
