package redistest

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// longTimeout limits operations on a busy machine; usually they take milliseconds.
const longTimeout = 10 * time.Second

// eventually polls until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(longTimeout)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// wantClosed waits for a channel to be closed.
func wantClosed(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(longTimeout):
		t.Fatalf("timed out waiting until %s", what)
	}
}

// callContext bounds a call: long enough for a normal reply, or short if no reply is expected.
func callContext(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// shortWait is how long a test waits for a reply when none should arrive.
const shortWait = 50 * time.Millisecond

func dial(t *testing.T, addr string) *Conn {
	t.Helper()
	c := Dial(addr)
	t.Cleanup(c.Close)
	return c
}

func want(t *testing.T, c *Conn, value any, args ...string) {
	t.Helper()
	got, err := c.Call(callContext(t, longTimeout), args...)
	if err != nil || got != value {
		t.Fatalf("%q: got %v, %v, want %v", args, got, err, value)
	}
}

func wantTimeout(t *testing.T, err error) {
	t.Helper()
	if !isTimeout(err) {
		t.Fatalf("got error %v, want a timeout", err)
	}
}

// wantBroken requires a connection error other than a timeout.
func wantBroken(t *testing.T, err error) {
	t.Helper()
	var broken *net.OpError
	if isTimeout(err) || !errors.As(err, &broken) {
		t.Fatalf("got error %v, want a broken connection", err)
	}
}

func isTimeout(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// A proxySetup is a server with two connections: through a proxy and direct.
type proxySetup struct {
	server *Server
	proxy  *Proxy
	client *Conn // through the proxy
	direct *Conn
}

func newProxySetup(t *testing.T) proxySetup {
	t.Helper()
	server := Start(t)
	proxy := NewProxy(t, server.Addr())
	return proxySetup{server, proxy, dial(t, proxy.Addr()), dial(t, server.Addr())}
}

// raw opens a connection through the proxy whose bytes the test sees, and waits until it
// reaches the server.
func (r proxySetup) raw(t *testing.T) *wireTap {
	t.Helper()
	conn, err := net.Dial("tcp", r.proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	tap := &wireTap{conn}
	tap.send(t, "PING\r\n")
	tap.wantLine(t, "+PONG\r\n")
	return tap
}

type wireTap struct{ net.Conn }

func (w *wireTap) send(t *testing.T, s string) {
	t.Helper()
	if _, err := w.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
}

func (w *wireTap) wantLine(t *testing.T, line string) {
	t.Helper()
	_ = w.SetReadDeadline(time.Now().Add(longTimeout))
	buf := make([]byte, len(line))
	for n := 0; n < len(line); {
		m, err := w.Read(buf[n:])
		if err != nil {
			t.Fatalf("got %q and %v, want %q", buf[:n], err, line)
		}
		n += m
	}
	if string(buf) != line {
		t.Fatalf("got %q, want %q", buf, line)
	}
}

// readError reads until an error, for at most d.
func (w *wireTap) readError(d time.Duration) error {
	_ = w.SetReadDeadline(time.Now().Add(d))
	buf := make([]byte, 512)
	for {
		if _, err := w.Read(buf); err != nil {
			return err
		}
	}
}

// wantReset wants the connection to end with an RST.
func wantReset(t *testing.T, w *wireTap) {
	t.Helper()
	if err := w.readError(longTimeout); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want %v", err, syscall.ECONNRESET)
	}
}
