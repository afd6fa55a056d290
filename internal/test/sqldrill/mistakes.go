package sqldrill

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// StartsTLS starts a server that begins TLS with a certificate that nobody trusts. First it sends a
// greeting, reads the client's request for TLS, and sends a reply.
func StartsTLS(t *testing.T, greeting []byte, request int, answer string) (addr string) {
	t.Helper()
	web := httptest.NewTLSServer(nil) // for its certificate
	t.Cleanup(web.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	serve := func(conn net.Conn) {
		defer conn.Close()
		_, _ = conn.Write(greeting)
		if _, err := io.ReadFull(conn, make([]byte, request)); err == nil {
			_, _ = conn.Write([]byte(answer))
			_ = tls.Server(conn, &tls.Config{Certificates: web.TLS.Certificates}).Handshake()
		}
	}
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			go serve(conn)
		}
	}()
	return listener.Addr().String()
}

// RefusesAtOnce checks that a configuration mistake ends a call at its first attempt, with advice
// in the error.
func RefusesAtOnce(t *testing.T, mistake string, s driver.Store, want string) {
	t.Helper()
	locks := dibs.New(s, dibs.Timeout(time.Minute))
	t.Cleanup(func() { locks.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // ends before the timeout
	defer cancel()
	_, err := locks.Mutex("m").TryLock(ctx)
	var u *driver.UnavailableError
	if !errors.As(err, &u) || !u.Refused || !u.Unsent || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got %v, want a refusal with %q", mistake, err, want)
	}
}

// NamesNoPoolWhileItHangs checks that errors for a hanging server do not mention the connection
// pool, although requests wait for a connection.
func NamesNoPoolWhileItHangs(t *testing.T, s driver.Store) {
	t.Helper()
	const calls = 3 // the first uses the connection, and the others wait for it
	errs := make(chan error, calls)
	for range calls {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := driver.Complete(s).Inspect(ctx, "m")
			errs <- err
		}()
	}
	for range calls {
		if err := <-errs; !errors.Is(err, dibs.ErrUnavailable) || strings.Contains(err.Error(), "pool") {
			t.Errorf("got %v, want ErrUnavailable without the pool", err)
		}
	}
}
