package redistest

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Proxy forwards TCP connections to a target and fails them as told. Every
// fault can be switched at any time, from any goroutine, and meets connections
// that are already open.
//
// It looks at bytes only: what one Read from the client gives is taken for one
// request, which holds for clients that write a pipeline at once, and what
// arrives next from the server for its reply, which holds for clients that have
// one request under way per connection.
//
// What it keeps back, for a delay or a freeze, it keeps in memory without limit.
type Proxy struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	delay    atomic.Int64
	rate     atomic.Int64 // bytes a second, or 0
	accepted atomic.Int64
	up, down tally

	mu      sync.Mutex
	closed  bool
	refuse  bool
	mode    mode
	changed chan struct{} // closed, and replaced, when mode changes
	traps   []*trap       // armed, the oldest first
	links   map[*link]struct{}
}

// A mode is what the proxy does with bytes in general.
type mode int

const (
	flowing  mode = iota
	frozen        // they wait
	dropping      // they are lost
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

// Addr is the host:port that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close resets all connections, forgets what was held, and returns when nothing
// of the proxy runs any more.
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

// Stats counts what has come by.
type Stats struct {
	Accepted int64 // connections, those refused included
	Requests int64 // chunks that clients have sent: their round trips, if they pipeline in one write
	Up       int64 // bytes passed on to the server
	Down     int64 // bytes passed on to clients
}

// Stats is the count so far.
func (p *Proxy) Stats() Stats {
	return Stats{
		Accepted: p.accepted.Load(),
		Requests: p.up.chunks.Load(),
		Up:       p.up.bytes.Load(),
		Down:     p.down.bytes.Load(),
	}
}

// Delay makes the way longer: every byte arrives d later, in each direction.
// Bytes under way overlap, as on a long cable, and their order is kept. It does
// not delay the making of a connection, which happens before the proxy learns of
// it.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Throttle makes each connection slow: so many bytes a second pass in each direction, one
// after another, and what came first goes first. With 0 it is as fast as it can be.
func (p *Proxy) Throttle(bytes int) { p.rate.Store(int64(bytes)) }

// Reset ends all current connections with an RST, on both sides. A request that
// is held stays held: it left its client before.
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

// Freeze is a partition that stalls: nothing passes, in either direction, on
// connections old and new, and all of it arrives after Thaw. Bytes that were
// being written when Freeze was called do pass.
func (p *Proxy) Freeze() { p.setMode(frozen) }

// Drop is a partition that loses: what is sent meanwhile never arrives.
// Connections that lost something, the wish to close included, and those made
// meanwhile are of no more use, and are reset by Thaw; an idle one survives.
func (p *Proxy) Drop() { p.setMode(dropping) }

// Thaw ends a Freeze or a Drop, and resets the connections that have gone mute.
func (p *Proxy) Thaw() {
	p.setMode(flowing)
	for _, l := range p.current(func(l *link) bool { return l.mute }) {
		l.reset()
	}
}

// Heal ends every fault: it is Thaw, Refuse(false), and the disarming of what was
// to happen to a next request. A Delay is no fault, and stays.
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

// current returns the links that are wanted. It asks under p.mu.
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
