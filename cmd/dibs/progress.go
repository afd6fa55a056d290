package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/dashboard/view"
)

// A progress shows, during a wait, the holder and the number of waiters ahead: on a terminal line
// redrawn every second, or as events.
type progress struct {
	session *session
	names   []string
	begun   time.Time

	stop context.CancelFunc
	done sync.WaitGroup
}

func (s *session) progress(names []string) *progress {
	return &progress{session: s, names: names, begun: time.Now()}
}

func (p *progress) hooks() dibs.Hooks {
	return dibs.Hooks{Queued: p.waiting}
}

// waiting is the hook for a request that joined the queue.
func (p *progress) waiting(_ context.Context, w dibs.Queued) {
	if p.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	con, wait := p.session.con, view.Wait{Names: p.names, Holder: string(w.Holder), Position: w.Position}
	con.event(view.WaitingEvent{Stamp: stamp("waiting"), Name: w.Name(), Holder: view.OwnerOf(string(w.Holder)).Short, Position: w.Position})
	p.session.logVerbose("%s", wait)
	if con.showsProgress() {
		locks := p.session.locks
		p.done.Go(func() { p.refresh(ctx, locks, w, wait) })
	}
}

// refresh redraws the line until ctx ends. It starts after 300 ms: most waits are
// shorter.
func (p *progress) refresh(ctx context.Context, locks *dibs.Client, w dibs.Queued, wait view.Wait) {
	const soon, every = 300 * time.Millisecond, time.Second
	con := p.session.con
	for pause := soon; sleep(ctx, pause); pause = every {
		if state, err := locks.Inspect(ctx, w.Name()); err == nil {
			update(&wait, state, w.Token)
		}
		con.showProgress(wait.Line(time.Since(p.begun), widthOf(con.err)))
	}
	con.clearProgress()
}

// update records the first holder in a state, and the position of the waiter with this token.
func update(wait *view.Wait, s dibs.State, token dibs.Token) {
	holder := dibs.Token("")
	if len(s.Holders) > 0 {
		holder = s.Holders[0].Token
	}
	at := slices.IndexFunc(s.Waiters, func(w dibs.Waiter) bool { return w.Token == token })
	wait.Update(string(holder), at+1)
}

func (p *progress) end() {
	if p.stop != nil {
		p.stop()
		p.done.Wait()
		p.stop = nil
	}
}
