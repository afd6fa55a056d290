package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/dibslock/dibs"
	"golang.org/x/term"
)

// A progress shows, during a wait, the holder and the number of waiters ahead: on one
// line of a terminal that is redrawn every second, or as events.
type progress struct {
	app        *app
	locks      *dibs.Client
	names      []string
	begun      time.Time
	onTerminal bool // stderr is a terminal and not silenced

	stop context.CancelFunc
	done sync.WaitGroup
}

func (a *app) progress(locks *dibs.Client, names []string) *progress {
	return &progress{app: a, locks: locks, names: names, begun: time.Now(), onTerminal: !a.quiet && !a.json && terminal(a.err)}
}

// clearLine erases the current line of a terminal.
const clearLine = "\r\x1b[K"

func terminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// widthOf returns the width of a terminal in columns, or 80 if w is not a terminal.
func widthOf(w any) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

func (p *progress) hooks() dibs.Hooks {
	return dibs.Hooks{Queued: p.waiting}
}

// waiting is the hook for a request that has joined the queue.
func (p *progress) waiting(_ context.Context, w dibs.Queued) {
	if p.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	if p.app.json {
		p.app.event(event{Event: "waiting", Name: w.Name, Holder: ownerOf(w.Holder).short, Position: w.Position})
	}
	p.app.logVerbose("%s", waitingFor(quoted(p.names), w.Holder, w.Position))
	if p.onTerminal {
		p.done.Go(func() { p.refresh(ctx, w) })
	}
}

// refresh redraws the line until ctx ends. It starts after 300 ms: most waits are
// shorter.
func (p *progress) refresh(ctx context.Context, w dibs.Queued) {
	const soon, every = 300 * time.Millisecond, time.Second
	holder, position := w.Holder, w.Position
	for pause := soon; ; pause = every {
		select {
		case <-ctx.Done():
			if p.app.progressShown.CompareAndSwap(true, false) {
				fmt.Fprint(p.app.err, clearLine)
			}
			return
		case <-time.After(pause):
		}
		if state, err := p.locks.Inspect(ctx, w.Name); err == nil {
			holder, position = holderAndPosition(state, w.Token, holder, position)
		}
		p.draw(holder, position)
	}
}

// draw shows the wait on one line of the terminal. The text is cut to the width, because
// clearLine cannot erase a line that wraps.
func (p *progress) draw(holder string, position int) {
	width := widthOf(p.app.err)
	rest := fmt.Sprintf(", %v", time.Since(p.begun).Round(time.Second))
	name := quoted(p.names)
	text := "dibs: " + waitingFor(name, holder, position) + rest
	if over := utf8.RuneCountInString(text) - width + 1; over > 0 {
		name = shorten(name, max(utf8.RuneCountInString(name)-over, shortest))
		text = "dibs: " + waitingFor(name, holder, position) + rest
	}
	p.app.progressShown.Store(true)
	fmt.Fprint(p.app.err, clearLine+cut(text, width-1))
}

// waitingFor describes a wait: the names, the holder and the number of waiters ahead.
func waitingFor(names, holder string, position int) string {
	text := "waiting for " + names
	if holder != "" {
		text += ": held by " + ownerOf(holder).String()
	}
	if position > 1 {
		text += ", " + plural(position-1, "waiter", "waiters") + " ahead"
	}
	return text
}

// holderAndPosition returns the first holder in state and the queue position of token. If
// state lacks one of them, it returns the value that was passed in.
func holderAndPosition(state dibs.State, token, holder string, position int) (string, int) {
	if len(state.Holders) > 0 {
		holder = state.Holders[0].Token
	}
	for i, w := range state.Waiters {
		if w.Token == token {
			position = i + 1
		}
	}
	return holder, position
}

func (p *progress) end() {
	if p.stop != nil {
		p.stop()
		p.done.Wait()
	}
}
