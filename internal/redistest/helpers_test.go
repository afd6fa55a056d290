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

// generous is a limit for what takes milliseconds, on a machine that is busy.
const generous = 10 * time.Second

// eventually polls until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(generous)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("still waiting that %s", what)
		}
	}
}

// happens waits for a channel to be closed.
func happens(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(generous):
		t.Fatalf("still waiting that %s", what)
	}
}

// within bounds one call: long enough for a healthy answer, or short where none
// is wanted.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// blink is how long a test waits for an answer that must not come.
const blink = 50 * time.Millisecond

func dial(t *testing.T, addr string) *Conn {
	t.Helper()
	c := Dial(addr)
	t.Cleanup(c.Close)
	return c
}

func want(t *testing.T, c *Conn, value any, args ...string) {
	t.Helper()
	have, err := c.Call(within(t, generous), args...)
	if err != nil || have != value {
		t.Fatalf("%q: have %v, %v, want %v", args, have, err, value)
	}
}

func wantTimeout(t *testing.T, err error) {
	t.Helper()
	if !isTimeout(err) {
		t.Fatalf("have error %v, want a timeout", err)
	}
}

// wantBroken wants an error of the connection that is no timeout.
func wantBroken(t *testing.T, err error) {
	t.Helper()
	var broken *net.OpError
	if isTimeout(err) || !errors.As(err, &broken) {
		t.Fatalf("have error %v, want a broken connection", err)
	}
}

func isTimeout(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// A rig is a server, a way to it through a proxy, and one past it.
type rig struct {
	server *Server
	proxy  *Proxy
	client *Conn // through the proxy
	direct *Conn
}

func newRig(t *testing.T) rig {
	t.Helper()
	server := Start(t)
	proxy := NewProxy(t, server.Addr())
	return rig{server, proxy, dial(t, proxy.Addr()), dial(t, server.Addr())}
}

// raw opens a connection through the proxy of which the test sees every byte, and
// makes sure that it is through to the server.
func (r rig) raw(t *testing.T) *wireTap {
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
	_ = w.SetReadDeadline(time.Now().Add(generous))
	buf := make([]byte, len(line))
	for n := 0; n < len(line); {
		m, err := w.Read(buf[n:])
		if err != nil {
			t.Fatalf("have %q and %v, want %q", buf[:n], err, line)
		}
		n += m
	}
	if string(buf) != line {
		t.Fatalf("have %q, want %q", buf, line)
	}
}

// readError reads until that fails, for at most d.
func (w *wireTap) readError(d time.Duration) error {
	_ = w.SetReadDeadline(time.Now().Add(d))
	buf := make([]byte, 512)
	for {
		if _, err := w.Read(buf); err != nil {
			return err
		}
	}
}

// wantReset wants the connection to end, and not politely.
func wantReset(t *testing.T, w *wireTap) {
	t.Helper()
	if err := w.readError(generous); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("have %v, want %v", err, syscall.ECONNRESET)
	}
}
