package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dibslock/dibs"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func (a *app) topCmd() *cobra.Command {
	var every durationFlag
	c := &cobra.Command{
		Use:   "top [GLOB]",
		Short: "Show the locks on a screen, the longest wait first",
		Long: `Show the locks on a screen that is updated continuously. Names with the longest
wait come first, then names that never expire. GLOB is as in "dibs ls".

Keys:

    j and k, or the arrows                 move
    space and b, or Page Down and Page Up  move by a page
    g and G, or Home and End               go to the first and the last name
    s                                      change the order
    ^Z                                     suspend
    q                                      quit`,
		Example: `  dibs top
  dibs top 'order:*' --every 2s`,
		Args:              argCount(0, 1),
		ValidArgsFunction: a.completeName,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := every.check(); err != nil {
				return err
			}
			if a.json {
				return usage("top has no JSON output; use dibs watch --json")
			}
			return a.top(globOf(args), time.Duration(every))
		},
	}
	addEvery(c, &every)
	return c
}

// Terminal sequences. enterScreen turns autowrap off: a line that is wider than expected
// does not overwrite the next one.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	endLine     = "\x1b[m\x1b[K"
	endScreen   = "\x1b[J"
	reverse     = "\x1b[7m"
	bold        = "\x1b[1m"
	red         = "\x1b[31m"
)

func (a *app) top(glob string, every time.Duration) error {
	out, ok := a.out.(*os.File)
	if !ok || !terminal(out) || !terminal(a.in) || a.getenv("TERM") == "dumb" {
		return usage(`top needs a terminal with cursor control; "dibs watch" prints the changes line by line, "dibs ls" the current locks`)
	}
	s, err := a.open()
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }() // only reads were made
	return a.onScreen(out, func(suspend func()) error { return a.topLoop(s, out, glob, every, suspend) })
}

// onScreen calls do with the terminal in raw mode on the alternate screen, and restores
// the terminal afterwards, also after a panic.
func (a *app) onScreen(out *os.File, do func(suspend func()) error) error {
	was, err := term.MakeRaw(int(a.in.Fd()))
	if err != nil {
		return fmt.Errorf("top: %w", err)
	}
	leave := func() {
		fmt.Fprint(out, leaveScreen)
		_ = term.Restore(int(a.in.Fd()), was) // fails only if the terminal is gone
	}
	defer leave()
	fmt.Fprint(out, enterScreen)
	return do(func() {
		leave()
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // always permitted
	})
}

// A snapshot is the result of one poll.
type snapshot struct {
	states []dibs.State
	err    error
}

func (a *app) topLoop(s *opened, out *os.File, glob string, every time.Duration, suspend func()) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	polls, keys, panics := make(chan snapshot), make(chan string), make(chan string, 2)
	go catchPanic(panics, func() {
		for ctx.Err() == nil {
			states, err := a.inspectMatching(ctx, s, glob)
			send(ctx, polls, snapshot{states, err})
			sleepOrDone(ctx, every)
		}
	})
	go catchPanic(panics, func() { readKeys(ctx, a.in, keys) })
	v := board{location: s.location, every: every, colours: a.colours(), loading: true}
	for {
		width, height, err := term.GetSize(int(out.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			width, height = 80, 24
		}
		if err := a.print(v.draw(width, height)); err != nil {
			return err
		}
		select {
		case poll := <-polls:
			if errors.Is(poll.err, dibs.ErrInvalid) {
				return poll.err
			}
			v.update(poll, time.Now())
		case key := <-keys:
			if key == "\x1a" { // raw mode turns ^Z into a key
				suspend()
			}
			if code, quit := v.handleKey(key); quit {
				return exitWith(code, nil)
			}
		case caught := <-a.caught:
			switch sig, _ := caught.(syscall.Signal); {
			case isTermination(sig):
				return exitWith(exitSignal+int(sig), nil)
			case sig == syscall.SIGTSTP:
				suspend()
			case sig == syscall.SIGCONT: // a shell may have used the terminal meanwhile
				_, _ = term.MakeRaw(int(a.in.Fd())) // a failure leaves the mode as it is
				fmt.Fprint(out, enterScreen)
			}
		case stack := <-panics:
			panic(stack)
		}
	}
}

func send[T any](ctx context.Context, to chan<- T, v T) {
	select {
	case to <- v:
	case <-ctx.Done():
	}
}

// readKeys sends the pressed keys. At the end of the input it sends "q".
func readKeys(ctx context.Context, in *os.File, keys chan<- string) {
	for buf := make([]byte, 64); ; {
		n, err := in.Read(buf)
		for typed := string(buf[:n]); typed != ""; {
			key := firstKey(typed)
			typed = typed[len(key):]
			send(ctx, keys, key)
		}
		if err != nil {
			send(ctx, keys, "q")
			return
		}
	}
}

// firstKey returns the characters of the first key in typed.
func firstKey(typed string) string {
	if len(typed) < 3 || typed[0] != '\x1b' || typed[1] != '[' && typed[1] != 'O' {
		return typed[:1]
	}
	for i := 2; i < len(typed); i++ {
		if typed[i] >= '@' {
			return typed[:i+1]
		}
	}
	return typed
}

// A board is the content of the screen.
type board struct {
	location string
	every    time.Duration
	colours  bool

	loading    bool   // before the first answer
	storeError string // error of the last poll, or ""
	at         time.Time
	names      []nameState
	sortIndex  int    // index into sortings
	chosen     string // the selected name
	row        int    // index of the selected name
	first      int    // index of the first visible row
	page       int    // number of visible rows
}

// sortings are the orders that the key s cycles through.
var sortings = []struct {
	by    string
	order func(x, y nameState) int
}{
	{"worst", byWorst},
	{"name", orders["name"]},
	{"ttl", orders["ttl"]},
	{"waiting", orders["waiting"]},
}

// byWorst sorts by the longest wait, then by the number of waiters, then names that never
// expire.
func byWorst(x, y nameState) int {
	never := func(n nameState) int {
		if n.neverExpires() {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(y.longestWait(), x.longestWait()), cmp.Compare(y.Waiting, x.Waiting), cmp.Compare(never(y), never(x)))
}

// neverExpires reports whether one of the leases never expires.
func (n nameState) neverExpires() bool {
	return slices.ContainsFunc(n.Holders, func(h holder) bool { return h.TTL == nil })
}

func (b *board) update(look snapshot, at time.Time) {
	b.loading, b.storeError, b.at = false, "", at
	if look.err != nil {
		b.storeError = safe(strings.TrimPrefix(look.err.Error(), "dibs: "))
		return
	}
	b.names = statesOf(look.states)
	b.sort()
}

// sort sorts the names. The selection stays on its name, or on its row if the name is
// gone.
func (b *board) sort() {
	slices.SortStableFunc(b.names, orders["name"])
	slices.SortStableFunc(b.names, sortings[b.sortIndex].order)
	if i := slices.IndexFunc(b.names, func(n nameState) bool { return n.Name == b.chosen }); i >= 0 {
		b.row = i
	}
	b.move(0)
}

func (b *board) move(by int) {
	b.row = max(min(b.row+by, len(b.names)-1), 0)
	b.chosen = ""
	if len(b.names) > 0 {
		b.chosen = b.names[b.row].Name
	}
}

// handleKey handles a key and reports whether to quit, with the exit code.
func (b *board) handleKey(key string) (code int, quit bool) {
	switch key {
	case "q":
		return 0, true
	case "\x03": // raw mode turns ^C into a key
		return exitSignal + int(syscall.SIGINT), true
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
		b.sortIndex = (b.sortIndex + 1) % len(sortings)
		b.sort()
	}
	return 0, false
}

// draw returns the output for one frame.
func (b *board) draw(width, height int) string {
	var out strings.Builder
	out.WriteString(home)
	lines := b.lines(width, height)
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			out.WriteString("\r\n")
		}
		if line.style != red || b.colours {
			out.WriteString(line.style)
		}
		out.WriteString(cut(line.text, width) + endLine)
	}
	return out.String() + endScreen
}

type styled struct{ style, text string }

func cut(text string, width int) string {
	if r := []rune(text); len(r) > width {
		return string(r[:width])
	}
	return text
}

// lines returns the header, the names, the details of the selected name if there is room,
// and the keys.
func (b *board) lines(width, height int) []styled {
	const roomy, most = 16, 12
	lines := b.head()
	var detail []string
	if height >= roomy && len(b.names) > 0 {
		detail = strings.Split(strings.TrimSuffix(b.names[b.row].text(width), "\n"), "\n")
		detail = append([]string{""}, detail[:min(len(detail), most, height/3)]...)
	}
	t := b.table().fit(width, "FENCE", "KIND", "HELD", "HOLDER").lines()
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

func (b *board) head() []styled {
	held, waiting, never, longest := 0, 0, 0, time.Duration(0)
	for _, n := range b.names {
		if len(n.Holders) > 0 {
			held++
		}
		waiting += n.Waiting
		longest = max(longest, n.longestWait())
		if n.neverExpires() {
			never++
		}
	}
	state := styled{"", ""}
	switch {
	case b.loading:
		state.text = "loading …"
	case b.storeError != "":
		state = styled{red, "the store does not answer, showing the last state: " + b.storeError}
	case len(b.names) == 0:
		state.text = "nothing is held"
	}
	counts := fmt.Sprintf("held %d   waiting %d   longest wait %s   never expiring %d   sorted by %s",
		held, waiting, brief(longest), never, sortings[b.sortIndex].by)
	return []styled{
		{bold, fmt.Sprintf("dibs top   %s   every %v   %s", b.location, b.every, clock(b.at))},
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

func (b *board) table() (t table) {
	t.row("  NAME", "KIND", "HOLDER", "TTL", "HELD", "WAIT", "LONGEST", "FENCE")
	for _, n := range b.names {
		longest := ""
		if n.Waiting > 0 {
			longest = brief(n.longestWait())
		}
		t.row("  "+safe(n.Name), orDash(n.Kind), orDash(n.holderSummary()), n.ttl(), orDash(n.ago()), strconv.Itoa(n.Waiting), orDash(longest), number(n.Fence))
	}
	return t
}
