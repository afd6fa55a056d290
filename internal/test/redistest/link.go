package redistest

import (
	"context"
	"net"
	"sync"
)

// A link is a client's connection and its connection to the server.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	ctx    context.Context // ends with the link
	cancel context.CancelFunc

	// guarded by proxy.mu
	silent bool  // nothing passes any more
	reply  *trap // fires on the next reply

	mu     sync.Mutex
	server *net.TCPConn // nil until connected
	held   []byte       // a request waiting for its release
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

// connect connects to the server when bytes may pass, because a handshake also sends bytes.
// If bytes are lost, it keeps the client waiting for a Thaw.
func (l *link) connect() *net.TCPConn {
	if !l.waitFlowing() {
		<-l.ctx.Done()
		return nil
	}
	dialer := net.Dialer{Timeout: ioTimeout}
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

// waitFlowing waits until a freeze ends, and reports whether the next bytes may be
// forwarded.
func (l *link) waitFlowing() bool {
	for {
		mode, changed, silent := l.state()
		if silent {
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

// state returns the proxy's mode. A link used during a Drop becomes silent under the same lock;
// otherwise it could miss the Thaw meant to reset it.
func (l *link) state() (m mode, changed <-chan struct{}, silent bool) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == dropping {
		l.silent = true
	}
	return p.mode, p.changed, l.silent
}

// silence makes the link silent.
func (l *link) silence() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.silent = true
}

// reset ends both sides with an RST, but leaves the server's side open for a held
// request.
func (l *link) reset() { l.end(false) }

// destroy is reset for a closing proxy: a held request is lost.
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

// hold keeps a request for release, and silences the link.
func (l *link) hold(request []byte) {
	l.silence()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = request
}

// release sends the held request. If the client's side was reset meanwhile, it also
// closes the server's side.
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

// abort closes a connection with an RST rather than a FIN.
func abort(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	conn.Close()
}
