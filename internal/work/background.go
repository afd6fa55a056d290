// Package work runs a client's background work: jobs, loops, and functions that may be slow. It
// limits how long closing a client takes.
package work

import (
	"context"
	"sync"
)

// A Background runs and counts a client's goroutines, and the calls for which Close waits. Jobs end
// by themselves; loops run until life ends. It is safe for concurrent use.
type Background struct {
	life    context.Context // context of all background work
	end     context.CancelFunc
	open    context.Context // ends with Close
	endOpen context.CancelFunc
	idle    chan struct{} // signals the end of a job or loop

	mu     sync.Mutex
	closed bool
	jobs   int
	loops  int
}

// NewBackground returns a Background without jobs and loops.
func NewBackground() *Background {
	life, end := context.WithCancel(context.Background())
	open, endOpen := context.WithCancel(life)
	return &Background{life: life, end: end, open: open, endOpen: endOpen, idle: make(chan struct{}, 1)}
}

// UntilEnd returns the context of all background work. It ends with End.
func (b *Background) UntilEnd() context.Context { return b.life }

// UntilClose returns a context that ends with Close.
func (b *Background) UntilClose() context.Context { return b.open }

// Begin counts the caller as a job. The caller must call Done soon after UntilClose has ended.
// Begin returns false after Close.
func (b *Background) Begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.jobs++
	return true
}

// Done ends a Begin.
func (b *Background) Done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs--
	b.signal()
}

// Run runs a job in a goroutine. f must return soon after its context ends. Run returns false if
// life has ended: the state that f would have removed expires at the store. Jobs can still start
// after Close.
func (b *Background) Run(f func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life.Err() != nil {
		return false
	}
	b.jobs++
	go func() {
		defer b.Done()
		f(b.life)
	}()
	return true
}

// Loop runs f in a goroutine. f returns when life ends.
func (b *Background) Loop(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.loops++
	go func() {
		f()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.loops--
		b.signal()
	}()
}

// signal makes wait check again.
func (b *Background) signal() {
	select {
	case b.idle <- struct{}{}:
	default:
	}
}

// Close makes Begin return false, and ends UntilClose. It returns false if already closed.
func (b *Background) Close() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.closed = true
	b.endOpen()
	return true
}

// IsClosed reports whether Close was called.
func (b *Background) IsClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// End ends life.
func (b *Background) End() { b.end() }

// WaitJobs waits until no job runs, or until ctx ends.
func (b *Background) WaitJobs(ctx context.Context) {
	b.wait(ctx, func() bool { return b.jobs > 0 })
}

// WaitAll waits until no job and no loop runs, or until ctx ends.
func (b *Background) WaitAll(ctx context.Context) {
	b.wait(ctx, func() bool { return b.jobs+b.loops > 0 })
}

func (b *Background) wait(ctx context.Context, busy func() bool) {
	for {
		b.mu.Lock()
		done := !busy()
		b.mu.Unlock()
		if done {
			return
		}
		select {
		case <-b.idle:
		case <-ctx.Done():
			return
		}
	}
}
