package localstore

import (
	"context"
	"os"
	"sync"
	"time"
)

// A writeQueue admits one writing process at a time, roughly in order of arrival. SQLite's own lock
// already guarantees safety, but it has no queue: contenders would poll, be served by chance, and
// consume the writer's CPU time. flock(2) provides a queue.
//
// A process waits in it with a single goroutine, because the wait cannot be cancelled. If the
// operation's time runs out, the next operation takes over the wait.
type writeQueue struct {
	file *os.File // nil: there is no queue, and SQLite's lock is polled

	mu      sync.Mutex
	waiting bool          // a goroutine waits in the queue
	wanted  bool          // an operation waits for the lock
	closing bool          // the goroutine must close the file
	locked  chan struct{} // contains a value when the lock is held
}

func newWriteQueue(path string) *writeQueue {
	file, err := os.OpenFile(path+".turn", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		file = nil
	}
	return &writeQueue{file: file, locked: make(chan struct{}, 1)}
}

// lock waits for the write lock, and reports whether it was acquired before until and before ctx
// ended. Only one operation in the process calls it at a time.
func (g *writeQueue) lock(ctx context.Context, until time.Time) bool {
	if g.file == nil || g.tryLock() {
		return true
	}
	limit := time.NewTimer(time.Until(until))
	defer limit.Stop()
	select {
	case <-g.locked:
		return true
	case <-ctx.Done():
	case <-limit.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wanted = false
	select {
	case <-g.locked: // acquired just now
		return true
	default:
		return false
	}
}

// tryLock acquires the lock if it is free, and joins the queue if not.
func (g *writeQueue) tryLock() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.waiting && tryFlock(g.file) {
		return true
	}
	g.wanted = true
	if !g.waiting {
		g.waiting = true
		go g.wait()
	}
	return false
}

// wait waits in the queue.
func (g *writeQueue) wait() {
	waitFlock(g.file)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = false
	switch {
	case g.closing:
		_ = g.file.Close()
	case g.wanted:
		g.wanted = false
		g.locked <- struct{}{}
	default:
		unflock(g.file)
	}
}

func (g *writeQueue) unlock() {
	if g.file != nil {
		unflock(g.file)
	}
}

// close must be called while no operation is running.
func (g *writeQueue) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing = true; !g.waiting && g.file != nil {
		_ = g.file.Close()
	}
}
