package goredisstore

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/redis/go-redis/v9"
)

// A tlsProbe finds out, while a server has never replied, whether only one side uses TLS. A server
// with TLS ends connections without TLS, as others do for other reasons. A server without TLS takes
// TLS for a command and waits for the rest.
type tlsProbe struct {
	addr    string
	usesTLS bool
	dial    Dialer // as the client does

	mu    sync.Mutex
	at    time.Time // when the last probe was made
	found error
}

// newTLSProbe returns the probe for a single server's client.
func newTLSProbe(rdb *redis.Client) *tlsProbe {
	o := rdb.Options()
	return &tlsProbe{addr: o.Addr, usesTLS: o.TLSConfig != nil, dial: func(ctx context.Context, _, addr string) (net.Conn, error) {
		if o.TLSConfig != nil {
			return new(net.Dialer).DialContext(ctx, o.Network, addr)
		}
		return o.Dialer(ctx, o.Network, addr)
	}}
}

// newClusterTLSProbe returns the probe for a single node in a cluster.
func newClusterTLSProbe(rdb *redis.ClusterClient) *tlsProbe {
	o := rdb.Options()
	if len(o.Addrs) == 0 || o.Dialer != nil {
		return &tlsProbe{}
	}
	return &tlsProbe{addr: o.Addrs[0], usesTLS: o.TLSConfig != nil, dial: new(net.Dialer).DialContext}
}

const (
	probeAfter = 300 * time.Millisecond // without an answer
	probeEvery = time.Second
	probeTime  = 300 * time.Millisecond // for each probe
)

// run returns a *redisconn.TLSMismatchError, or nil. It opens a connection at most once in probeEvery.
func (p *tlsProbe) run() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dial == nil || time.Since(p.at) < probeEvery {
		return p.found
	}
	p.found = p.connect()
	p.at = time.Now()
	return p.found
}

func (p *tlsProbe) connect() error {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	conn, err := p.dial(ctx, "tcp", p.addr)
	if err != nil {
		return nil // the call has the reason
	}
	defer conn.Close()
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return nil // the user's Dialer may use TLS itself
	}
	_ = conn.SetDeadline(time.Now().Add(probeTime)) // else the next operations fail
	if p.usesTLS && speaksRedis(conn) || !p.usesTLS && speaksTLS(conn) {
		addr := p.addr
		if _, _, err := net.SplitHostPort(addr); err != nil { // go-redis has no address for a master named by sentinels
			addr = conn.RemoteAddr().String()
		}
		return &redisconn.TLSMismatchError{Addr: addr, TLS: !p.usesTLS}
	}
	return nil
}

// speaksRedis reports whether a server replies to a command without TLS.
func speaksRedis(conn net.Conn) bool {
	var first [1]byte
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	_, err := conn.Read(first[:])
	return err == nil && (first[0] == '+' || first[0] == '-')
}

// speaksTLS reports whether a server answers a TLS greeting.
func speaksTLS(conn net.Conn) bool {
	r := &recorder{Conn: conn}
	_ = tls.Client(r, &tls.Config{InsecureSkipVerify: true}).Handshake() // the first record shows it, whatever the outcome
	const alert, handshake, major = 21, 22, 3
	return len(r.first) > 1 && (r.first[0] == alert || r.first[0] == handshake) && r.first[1] == major
}

// A recorder records the first bytes that it reads.
type recorder struct {
	net.Conn
	first []byte
}

// Read implements net.Conn.
func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if len(r.first) < 2 {
		r.first = append(r.first, b[:n]...)
	}
	return n, err
}
