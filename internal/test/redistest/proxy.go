package redistest

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Proxy forwards TCP connections to a target and injects faults. Every fault can be switched on
// and off at any time, from any goroutine, and also affects open connections.
//
// It does not parse the protocol. The bytes from a single Read on the client's side count as a
// request, which is true for clients that write a pipeline at once. The next bytes from the server
// count as its reply, which is true for clients with a single request in flight per connection.
//
// It buffers delayed or frozen bytes in memory without limit.
type Proxy struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	delay    atomic.Int64
	rate     atomic.Int64 // bytes per second on each connection, or 0
	shared   atomic.Int64 // bytes per second on all connections together, or 0
	accepted atomic.Int64
	up, down traffic

	mu      sync.Mutex
	closed  bool
	refuse  bool
	mode    mode
	changed chan struct{} // closed and replaced when mode changes
	traps   []*trap       // armed, the oldest first
	links   map[*link]struct{}
}

// A mode is the proxy's way to handle bytes.
type mode int

const (
	flowing  mode = iota
	frozen        // bytes wait
	dropping      // bytes are lost
)

// NewProxy starts a proxy to a host:port and closes it with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := StartProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// StartProxy starts a proxy to a host:port. The caller closes it.
func StartProxy(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		target:   target,
		listener: listener,
		changed:  make(chan struct{}),
		links:    make(map[*link]struct{}),
	}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the host:port for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close resets all connections, drops held requests, and returns when all proxy goroutines have
// ended.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	for _, l := range p.current(every) {
		l.destroy()
	}
	p.running.Wait()
}

// Stats counts a proxy's traffic.
type Stats struct {
	Accepted int64 // connections, including refused ones
	Requests int64 // chunks sent by clients: their round trips, if they write a pipeline at once
	Up       int64 // bytes forwarded to the server
	Down     int64 // bytes forwarded to clients
}

// Stats returns the counts so far.
func (p *Proxy) Stats() Stats {
	return Stats{
		Accepted: p.accepted.Load(),
		Requests: p.up.chunks.Load(),
		Up:       p.up.bytes.Load(),
		Down:     p.down.bytes.Load(),
	}
}

// Delay delays every byte by d in each direction. Delays overlap, as on a long cable, and
// the order is kept. Connecting is not delayed, because it happens before the proxy
// accepts.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Throttle limits each connection to this many bytes per second in each direction. 0
// means no limit.
func (p *Proxy) Throttle(bytes int) { p.rate.Store(int64(bytes)) }

// Narrow limits all connections together to this many bytes per second in each direction, as
// a slow link does. 0 means no limit.
func (p *Proxy) Narrow(bytes int) { p.shared.Store(int64(bytes)) }

// Reset ends all current connections with an RST on both sides. A held request stays
// held: it left its client earlier.
func (p *Proxy) Reset() {
	for _, l := range p.current(every) {
		l.reset()
	}
}

// Refuse makes the proxy reset new connections at once, or stop doing so.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Freeze simulates a stalled network: nothing passes in either direction, on old and new
// connections, and everything arrives after Thaw. Bytes being written during the call do
// pass.
func (p *Proxy) Freeze() { p.setMode(frozen) }

// Drop simulates a lossy network: bytes sent meanwhile never arrive. Thaw resets the connections
// that lost bytes, even a close, and those opened meanwhile. An idle connection survives.
func (p *Proxy) Drop() { p.setMode(dropping) }

// Silence makes the current connections half-open: bytes sent on them never arrive, in either
// direction, and neither side notices. New connections work. Thaw resets the silent ones.
func (p *Proxy) Silence() {
	for _, l := range p.current(every) {
		l.silence()
	}
}

// Thaw ends a Freeze or a Drop, and resets the silent connections.
func (p *Proxy) Thaw() {
	p.setMode(flowing)
	for _, l := range p.current(func(l *link) bool { return l.silent }) {
		l.reset()
	}
}

// Forget ends a Drop as a real network does: connections that lost bytes, and those opened
// meanwhile, stay silent until a Thaw. Neither side notices.
func (p *Proxy) Forget() { p.setMode(flowing) }

// Heal ends every fault: it calls Thaw and Refuse(false), and disarms the traps for next
// requests. A Delay is no fault and remains.
func (p *Proxy) Heal() {
	p.mu.Lock()
	p.refuse = false
	p.traps = nil
	p.mu.Unlock()
	p.Thaw()
}

func (p *Proxy) setMode(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
}

func every(*link) bool { return true }

// current returns the links for which want is true. It calls want with p.mu held.
func (p *Proxy) current(want func(*link) bool) []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	var links []*link
	for l := range p.links {
		if want(l) {
			links = append(links, l)
		}
	}
	return links
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.accepted.Add(1)
		client := conn.(*net.TCPConn)
		if l := p.admit(client); l != nil {
			p.running.Go(l.run)
		} else {
			abort(client)
		}
	}
}

func (p *Proxy) admit(client *net.TCPConn) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refuse {
		return nil
	}
	l := &link{proxy: p, client: client}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	p.links[l] = struct{}{}
	return l
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
