package redistest

import (
	"bytes"
	"net"
	"sync/atomic"
	"time"
)

// A flow is one direction of a link. One goroutine collects what arrives and
// stamps it with the time at which it is due, another delivers it then: chunks
// that are delayed at the same time overlap.
type flow struct {
	link     *link
	src, dst *net.TCPConn
	count    *tally
	queue    queue
	free     time.Time // when what has arrived so far will have passed, if throttled
}

// A chunk is what one Read gave.
type chunk struct {
	data []byte
	last bool // src will send no more
	due  time.Time
	trap *trap // sprung by its delivery
}

// A tally counts what one direction of a proxy has seen.
type tally struct {
	chunks atomic.Int64 // arrived
	bytes  atomic.Int64 // passed on
}

func newFlow(l *link, src, dst *net.TCPConn, count *tally) *flow {
	return &flow{link: l, src: src, dst: dst, count: count, queue: newQueue()}
}

func (f *flow) isRequest() bool { return f.src == f.link.client }

func (f *flow) collect() {
	buf := make([]byte, 64<<10)
	for {
		n, err := f.src.Read(buf)
		due := f.pass(n).Add(time.Duration(f.link.proxy.delay.Load()))
		if n > 0 {
			f.arrive(chunk{data: bytes.Clone(buf[:n]), due: due})
		}
		if err != nil {
			f.arrive(chunk{last: true, due: due})
			return
		}
	}
}

// pass returns when so many bytes will have passed that arrive now.
func (f *flow) pass(n int) time.Time {
	now := time.Now()
	rate := f.link.proxy.rate.Load()
	if rate == 0 {
		return now
	}
	if f.free.Before(now) {
		f.free = now
	}
	f.free = f.free.Add(time.Duration(n) * time.Second / time.Duration(rate))
	return f.free
}

// arrive queues a chunk, unless it is lost, along with the trap that it springs.
// It is counted in between: after its trap is found, before anybody can answer.
func (f *flow) arrive(c chunk) {
	_, _, lost := f.link.look()
	if !c.last {
		if !lost {
			c.trap = f.spot(c.data)
		}
		f.count.chunks.Add(1)
	}
	if !lost || c.last {
		f.queue.push(c)
	}
}

func (f *flow) spot(data []byte) *trap {
	if f.isRequest() {
		return f.link.proxy.spotRequest(data)
	}
	return f.link.spotReply()
}

func (f *flow) deliver() {
	var clock alarm
	defer clock.stop()
	for {
		c, ok := f.queue.next(f.link.ctx)
		if !ok || !clock.wait(f.link.ctx, c.due) {
			return
		}
		if f.link.pass() && c.trap.spring(f.link, c) {
			f.write(c)
		}
		if c.last {
			return
		}
	}
}

// write ignores that dst has gone: its own flow's end tells src. It counts first,
// so that what a client has read has been counted.
func (f *flow) write(c chunk) {
	if c.last {
		_ = f.dst.CloseWrite()
		return
	}
	f.count.bytes.Add(int64(len(c.data)))
	_, _ = f.dst.Write(c.data)
}
