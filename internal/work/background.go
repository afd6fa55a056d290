// Package work runs what a client does beside its calls: jobs and loops, and the calls of functions that
// may be slow. It limits how long the end of a client takes.
package work

import (
	"context"
	"sync"
)

// A Background runs and counts the goroutines of a client, and the calls that Close waits
// for. Jobs end by themselves, loops run until life ends. It is safe for concurrent use.
type Background struct {
	life    context.Context // of all background work
	end     context.CancelFunc
	open    context.Context // ends with Close
	endOpen context.CancelFunc
	fresh   context.Context // ends with Drain
	drain   context.CancelFunc
	idle    chan struct{} // signals that a job or loop has ended

	mu     sync.Mutex
	closed bool
	jobs   int
	loops  int
}

// NewBackground returns a Background without jobs and loops.
func NewBackground() *Background {
	life, end := context.WithCancel(context.Background())
	open, endOpen := context.WithCancel(life)
	fresh, drain := context.WithCancel(open)
	return &Background{life: life, end: end, open: open, endOpen: endOpen, fresh: fresh, drain: drain, idle: make(chan struct{}, 1)}
}

// UntilEnd returns the context of all background work. It ends with End.
func (b *Background) UntilEnd() context.Context { return b.life }

// UntilClose returns a context that ends with Close.
func (b *Background) UntilClose() context.Context { return b.open }

// UntilDrain returns a context that ends with Drain or Close.
func (b *Background) UntilDrain() context.Context { return b.fresh }

// Drain ends what must not begin while the client shuts down.
func (b *Background) Drain() { b.drain() }

// Begin counts the caller as a job. It must call Done soon after Open has ended. Begin
// returns false after Close.
func (b *Background) Begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.jobs++
	return true
}

// Done ends what Begin began.
func (b *Background) Done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs--
	b.signal()
}

// Run runs a job in a goroutine. f must return soon after its context ends. Run returns
// false if life has ended: the state that f would have removed from the store expires
// there. Between Close and then it still runs jobs.
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

// Close makes Begin return false, and ends Open. It returns false if that was done
// before.
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
