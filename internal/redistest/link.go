package redistest

import (
	"context"
	"net"
	"sync"
)

// A link is one client's connection and the one to the server behind it.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	ctx    context.Context // ends when the link does
	cancel context.CancelFunc

	// guarded by proxy.mu
	mute  bool  // nothing passes any more
	reply *trap // what the next reply springs

	mu     sync.Mutex
	server *net.TCPConn // nil until connected
	held   []byte       // a request that waits for its release
}

// run forwards until both sides have closed, or the link is reset.
func (l *link) run() {
	defer l.proxy.remove(l)
	server := l.connect()
	if server == nil {
		l.reset()
		return
	}
	up := newFlow(l, l.client, server, &l.proxy.up)
	down := newFlow(l, server, l.client, &l.proxy.down)
	var flows sync.WaitGroup
	flows.Go(up.collect)
	flows.Go(down.collect)
	flows.Go(up.deliver)
	flows.Go(down.deliver)
	flows.Wait()
	l.cancel()
	l.client.Close()
	server.Close()
}

// connect reaches the server once bytes may pass, since a handshake is bytes. If
// they are lost it keeps the client waiting for a Thaw.
func (l *link) connect() *net.TCPConn {
	if !l.pass() {
		<-l.ctx.Done()
		return nil
	}
	dialer := net.Dialer{Timeout: patience}
	conn, err := dialer.DialContext(l.ctx, "tcp", l.proxy.target)
	if err != nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		conn.Close()
		return nil
	}
	l.server = conn.(*net.TCPConn)
	return l.server
}

// pass waits out a freeze and reports whether what comes next may be forwarded.
func (l *link) pass() bool {
	for {
		mode, changed, mute := l.look()
		if mute {
			return false
		}
		if mode == flowing {
			return true
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
			return false
		}
	}
}

// look asks after the weather. A link that is caught in a Drop goes mute under
// the same lock, or it could miss the Thaw that resets it.
func (l *link) look() (m mode, changed <-chan struct{}, mute bool) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == dropping {
		l.mute = true
	}
	return p.mode, p.changed, l.mute
}

// silence makes the link mute.
func (l *link) silence() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.mute = true
}

// reset ends both sides with an RST, but leaves the server's open for a request
// that is held.
func (l *link) reset() { l.end(false) }

// destroy is reset for a proxy that closes: what is held is lost.
func (l *link) destroy() { l.end(true) }

func (l *link) end(all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	abort(l.client)
	if l.server != nil && (all || l.held == nil) {
		abort(l.server)
	}
}

// hold keeps a request for release, with the link mute.
func (l *link) hold(request []byte) {
	l.silence()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = request
}

// release sends the held request. Where the client's side was reset meanwhile,
// nobody is left to close the server's.
func (l *link) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		return
	}
	l.proxy.up.bytes.Add(int64(len(l.held)))
	_, _ = l.server.Write(l.held)
	l.held = nil
	if l.ctx.Err() != nil {
		l.server.Close()
	}
}

// abort closes a connection with an RST in place of a FIN.
func abort(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	conn.Close()
}
