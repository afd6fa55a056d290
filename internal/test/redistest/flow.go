package redistest

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A flow is one direction on a link. A goroutine reads chunks and sets the time when each is due;
// another delivers them at that time. So chunks delayed at the same time overlap.
type flow struct {
	link     *link
	src, dst *net.TCPConn
	count    *traffic
	queue    queue
	freeAt   time.Time // when all bytes so far will have passed, if throttled
}

// A chunk is the result of a Read.
type chunk struct {
	data []byte
	last bool // src sends no more
	due  time.Time
	trap *trap // fires on delivery
}

// A traffic counts the bytes and chunks in one direction of a proxy.
type traffic struct {
	mu     sync.Mutex
	freeAt time.Time // when all bytes so far will have passed, if the link is narrow

	chunks atomic.Int64 // received
	bytes  atomic.Int64 // forwarded
}

func newFlow(l *link, src, dst *net.TCPConn, count *traffic) *flow {
	return &flow{link: l, src: src, dst: dst, count: count, queue: newQueue()}
}

func (f *flow) isRequest() bool { return f.src == f.link.client }

func (f *flow) collect() {
	buf := make([]byte, 64<<10)
	for {
		n, err := f.src.Read(buf)
		due := f.passTime(n).Add(time.Duration(f.link.proxy.delay.Load()))
		if n > 0 {
			f.receive(chunk{data: bytes.Clone(buf[:n]), due: due})
		}
		if err != nil {
			f.receive(chunk{last: true, due: due})
			return
		}
	}
}

// passTime returns the time when n bytes arriving now will have passed.
func (f *flow) passTime(n int) time.Time {
	now := time.Now()
	own := passAfter(&f.freeAt, now, n, f.link.proxy.rate.Load())
	f.count.mu.Lock()
	defer f.count.mu.Unlock()
	shared := passAfter(&f.count.freeAt, now, n, f.link.proxy.shared.Load())
	if shared.After(own) {
		return shared
	}
	return own
}

// passAfter returns the time when n bytes arriving now will have passed a link, which is free at
// freeAt. It updates freeAt. A rate of 0 means no limit.
func passAfter(freeAt *time.Time, now time.Time, n int, rate int64) time.Time {
	if rate == 0 {
		return now
	}
	if freeAt.Before(now) {
		*freeAt = now
	}
	*freeAt = freeAt.Add(time.Duration(n) * time.Second / time.Duration(rate))
	return *freeAt
}

// receive queues a chunk with the trap triggered by it, unless the chunk is lost. It counts the
// chunk after the trap is found and before any reply is possible.
func (f *flow) receive(c chunk) {
	_, _, lost := f.link.state()
	if !c.last {
		if !lost {
			c.trap = f.findTrap(c.data)
		}
		f.count.chunks.Add(1)
	}
	if !lost || c.last {
		f.queue.push(c)
	}
}

func (f *flow) findTrap(data []byte) *trap {
	if f.isRequest() {
		return f.link.proxy.matchRequest(data)
	}
	return f.link.removeReplyTrap()
}

func (f *flow) deliver() {
	var clock preciseTimer
	defer clock.stop()
	for {
		c, ok := f.queue.next(f.link.ctx)
		if !ok || !clock.wait(f.link.ctx, c.due) {
			return
		}
		if f.link.waitFlowing() && c.trap.fire(f.link, c) {
			f.write(c)
		}
		if c.last {
			return
		}
	}
}

// write ignores a closed dst: the other flow's end closes src. It counts first, so that
// everything a client has read is counted.
func (f *flow) write(c chunk) {
	if c.last {
		_ = f.dst.CloseWrite()
		return
	}
	f.count.bytes.Add(int64(len(c.data)))
	_, _ = f.dst.Write(c.data)
}
