package pgstore_test

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
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/pgstore"
)

// The program's other work may have all connections of its pool. The error for a server that does
// not reply says nothing of a pool.
func TestFullPoolDelaysNoLock(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	pool := newPool(t, "postgres://postgres@"+proxy.Addr()+"/postgres?sslmode=disable&pool_max_conns=1")
	s := newStoreOn(t, pool)
	locks := dibs.New(s, dibs.Timeout(2*time.Second))
	t.Cleanup(func() { locks.Close() })
	other, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Release)
	l, err := locks.Mutex("m").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}

	proxy.Freeze()
	t.Cleanup(proxy.Thaw)
	const calls = 3 // one has the connection, and the others wait for it
	errs := make(chan error, calls)
	for range calls {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := s.Inspect(ctx, "m")
			errs <- err
		}()
	}
	for range calls {
		if err := <-errs; !errors.Is(err, dibs.ErrUnavailable) || strings.Contains(err.Error(), "pool") {
			t.Errorf("got %v, want ErrUnavailable without the pool", err)
		}
	}
}

// startsTLS starts a server that agrees to TLS, with a certificate that nobody trusts.
func startsTLS(t *testing.T) (addr string) {
	t.Helper()
	web := httptest.NewTLSServer(nil) // for its certificate
	t.Cleanup(web.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			go func() {
				defer conn.Close()
				const request = 8
				if _, err := io.ReadFull(conn, make([]byte, request)); err == nil {
					_, _ = conn.Write([]byte("S"))
					_ = tls.Server(conn, &tls.Config{Certificates: web.TLS.Certificates}).Handshake() // the client ends it
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// A mistake about TLS ends a call at its first attempt, with what to do.
func TestMistakesAboutTLS(t *testing.T) {
	t.Parallel()
	for mode, c := range map[string]struct{ addr, want string }{
		"verify-full": {startsTLS(t), "is not trusted: add its CA"},
		"require":     {sharedServer(t).Addr(), "the server refused TLS: use sslmode=disable"},
	} {
		s := pgstore.New(newPool(t, "postgres://postgres@"+c.addr+"/postgres?sslmode="+mode))
		locks := dibs.New(s, dibs.Timeout(time.Minute))
		t.Cleanup(func() { locks.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // ends before the repetitions do
		defer cancel()
		_, err := locks.Mutex("m").TryLock(ctx)
		var u *driver.UnavailableError
		if !errors.As(err, &u) || !u.Refused || !u.Unsent || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want a refusal with %q", mode, err, c.want)
		}
	}
}
