package mysqlstore_test

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
	"github.com/dibslock/dibs/internal/test/mysqltest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/mysqlstore"
)

const poolName = "in the pool of the client (1, of which dibs uses 0): use a larger pool (SetMaxOpenConns of the *sql.DB)"

// An error says that the program's other work has all connections, and that nothing was sent. The
// error for a server that does not reply says neither, however full the pool is.
func TestFullPoolIsNamed(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	db := newDB(t, mysqltest.DSN(proxy.Addr(), "mysql"))
	db.SetMaxOpenConns(1)
	s := mysqlstore.New(db)
	locks := dibs.New(s, dibs.Timeout(300*time.Millisecond))
	t.Cleanup(func() { locks.Close() })
	other, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = locks.Mutex("m").TryLock(t.Context())
	var u *dibs.UnavailableError
	if !errors.As(err, &u) || !u.Unsent || u.Unreached || !strings.Contains(err.Error(), poolName) {
		t.Errorf("got %v, want an unsent request, and %q", err, poolName)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
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

// greeting is that of a server with TLS.
const greeting = "\x0a8.0.36\x00" + "\x01\x00\x00\x00" + "12345678\x00" + "\x00\x8a\x2d\x02\x00\x08\x00\x15" +
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + "123456789012\x00mysql_native_password\x00"

// startsTLS starts a server that sends a packet, and then begins TLS with a certificate that nobody
// trusts.
func startsTLS(t *testing.T, packet string) (addr string) {
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
				_, _ = conn.Write(append([]byte{byte(len(packet)), 0, 0, 0}, packet...))
				const request = 4 + 32
				if _, err := io.ReadFull(conn, make([]byte, request)); err == nil {
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
	const insecure = "\xff\x57\x0c#HY000Connections using insecure transport are prohibited" // 3159
	for dsn, want := range map[string]string{
		"root@tcp(" + startsTLS(t, greeting) + ")/mysql?tls=true": "is not trusted: add its CA",
		"root@tcp(" + sharedServer(t).Addr() + ")/mysql?tls=true": "the server does not use TLS: leave out tls",
		"root@tcp(" + startsTLS(t, insecure) + ")/mysql":          "the server wants TLS: use tls=true",
	} {
		locks := dibs.New(mysqlstore.New(newDB(t, dsn)), dibs.Timeout(time.Minute))
		t.Cleanup(func() { locks.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // ends before the repetitions do
		defer cancel()
		_, err := locks.Mutex("m").TryLock(ctx)
		var u *driver.UnavailableError
		if !errors.As(err, &u) || !u.Refused || !u.Unsent || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want a refusal with %q", dsn, err, want)
		}
	}
}
