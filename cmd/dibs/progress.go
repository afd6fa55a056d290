package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"golang.org/x/term"
)

// A progress tells, while a claim waits, who holds the name and how many are ahead: on
// one line of a terminal, again and again, or as events.
type progress struct {
	app   *app
	locks *dibs.Client
	name  string
	begun time.Time
	live  bool // on a terminal

	stop context.CancelFunc
	done sync.WaitGroup
}

func (a *app) progress(locks *dibs.Client, name string) *progress {
	return &progress{app: a, locks: locks, name: name, begun: time.Now(), live: !a.quiet && !a.json && terminal(a.err)}
}

func terminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (p *progress) hooks() dibs.Hooks {
	return dibs.Hooks{Waiting: p.waiting}
}

// waiting is called when the claim has joined the queue.
func (p *progress) waiting(w dibs.Waiting) {
	if p.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	if p.app.json {
		p.app.event(event{Event: "waiting", Name: w.Name, Holder: ownerOf(w.Holder).short, Position: w.Position})
	}
	if p.live {
		p.done.Go(func() { p.show(ctx, w) })
	}
}

// show keeps the line true. It begins a moment later: most waits are over by then.
func (p *progress) show(ctx context.Context, w dibs.Waiting) {
	const soon, every = 300 * time.Millisecond, time.Second
	holder, position := w.Holder, w.Position
	for pause := soon; ; pause = every {
		select {
		case <-ctx.Done():
			fmt.Fprint(p.app.err, "\r\x1b[K")
			return
		case <-time.After(pause):
		}
		if state, err := p.locks.Inspect(ctx, w.Name); err == nil {
			holder, position = now(state, w.Token, holder, position)
		}
		fmt.Fprintf(p.app.err, "\r\x1b[Kdibs: %q is held by %s; %d in line before you, %v",
			w.Name, ownerOf(holder), position-1, time.Since(p.begun).Round(time.Second))
	}
}

// now is who holds and where a token stands in line, if the state tells.
func now(state dibs.State, token, holder string, position int) (string, int) {
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
