package localstore

import (
	"context"
	"os"
	"sync"
	"time"
)

// A gate lets one process write at a time, in about the order in which they came. The
// database excludes them as well, and safety is there; but it knows no queue: who asks it
// again and again gets a turn by luck, and burns what the one who has it needs. The system
// knows one, for locks on files.
//
// A process waits there once, in a goroutine, since it cannot be called off. If its
// operation has no time left, the next one takes over the waiting.
type gate struct {
	file *os.File // or nil: there is no gate, only luck

	mu      sync.Mutex
	waiting bool          // a goroutine stands in the queue
	wanted  bool          // by an operation that waits for it
	closing bool          // it is to close the file
	opened  chan struct{} // one value when it has the gate
}

func newGate(path string) *gate {
	file, err := os.OpenFile(path+".turn", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		file = nil
	}
	return &gate{file: file, opened: make(chan struct{}, 1)}
}

// enter waits for the gate, and reports whether it could before until or ctx was over.
// One operation of the process calls it at a time.
func (g *gate) enter(ctx context.Context, until time.Time) bool {
	if g.file == nil || g.free() {
		return true
	}
	limit := time.NewTimer(time.Until(until))
	defer limit.Stop()
	select {
	case <-g.opened:
		return true
	case <-ctx.Done():
	case <-limit.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wanted = false
	select {
	case <-g.opened: // in this moment
		return true
	default:
		return false
	}
}

// free takes the gate if nobody has it, and joins the queue if somebody has.
func (g *gate) free() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.waiting && lockNow(g.file) {
		return true
	}
	g.wanted = true
	if !g.waiting {
		g.waiting = true
		go g.stand()
	}
	return false
}

// stand waits in the queue.
func (g *gate) stand() {
	lockInTurn(g.file)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = false
	switch {
	case g.closing:
		_ = g.file.Close()
	case g.wanted:
		g.wanted = false
		g.opened <- struct{}{}
	default:
		unlock(g.file)
	}
}

func (g *gate) leave() {
	if g.file != nil {
		unlock(g.file)
	}
}

// close is called when no operation is under way.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing = true; !g.waiting && g.file != nil {
		_ = g.file.Close()
	}
}
