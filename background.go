package dibs

import (
	"context"
	"sync"
)

// background runs and counts the goroutines of a client, and the calls that Close waits
// for. Jobs end by themselves, loops run until life ends. It is safe for concurrent use.
type background struct {
	life    context.Context // of all background work
	end     context.CancelFunc
	open    context.Context // ends with close
	endOpen context.CancelFunc
	closing <-chan struct{} // the end of open
	idle    chan struct{}   // signals that a job or loop has ended

	mu     sync.Mutex
	closed bool
	jobs   int
	loops  int
}

func newBackground() *background {
	life, end := context.WithCancel(context.Background())
	open, endOpen := context.WithCancel(life)
	return &background{life: life, end: end, open: open, endOpen: endOpen, closing: open.Done(), idle: make(chan struct{}, 1)}
}

// begin counts the caller as a job. It must call done soon after closing is closed. begin
// returns false after close.
func (b *background) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.jobs++
	return true
}

// done ends what begin began.
func (b *background) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs--
	b.signal()
}

// run runs a job in a goroutine. f must return soon after its context ends. run returns
// false if life has ended: the state that f would have removed from the store expires
// there. Between close and then it still runs jobs.
func (b *background) run(f func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life.Err() != nil {
		return false
	}
	b.jobs++
	go func() {
		defer b.done()
		f(b.life)
	}()
	return true
}

// loop runs f in a goroutine. f returns when life ends.
func (b *background) loop(f func()) {
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
func (b *background) signal() {
	select {
	case b.idle <- struct{}{}:
	default:
	}
}

// close makes begin return false, and ends open. It returns false if that was done
// before.
func (b *background) close() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.closed = true
	b.endOpen()
	return true
}

func (b *background) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// waitJobs waits until no job runs, or until ctx ends.
func (b *background) waitJobs(ctx context.Context) {
	b.wait(ctx, func() bool { return b.jobs > 0 })
}

// waitAll waits until no job and no loop runs, or until ctx ends.
func (b *background) waitAll(ctx context.Context) {
	b.wait(ctx, func() bool { return b.jobs+b.loops > 0 })
}

func (b *background) wait(ctx context.Context, busy func() bool) {
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
