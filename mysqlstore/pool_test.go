package mysqlstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/mysqltest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/mysqlstore"
)

const poolName = "in the pool of the client (1, of which dibs uses 0): use a larger pool (SetMaxOpenConns of the *sql.DB)"

// An error should say that the program's other work uses all connections, and that nothing was
// sent. The error for an unresponsive server should say neither, however full the pool is.
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
	var u *driver.UnavailableError
	if !errors.As(err, &u) || !u.Unsent || u.Unreached || !strings.Contains(err.Error(), poolName) {
		t.Errorf("got %v, want an unsent request, and %q", err, poolName)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}

	proxy.Freeze()
	t.Cleanup(proxy.Thaw)
	sqldrill.NamesNoPoolWhileItHangs(t, s)
}

// greeting is a greeting from a server with TLS.
const greeting = "\x0a8.0.36\x00" + "\x01\x00\x00\x00" + "12345678\x00" + "\x00\x8a\x2d\x02\x00\x08\x00\x15" +
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + "123456789012\x00mysql_native_password\x00"

// startsTLS starts a server that sends a packet, and then begins TLS with a certificate that nobody
// trusts.
func startsTLS(t *testing.T, packet string) (addr string) {
	t.Helper()
	const request = 4 + 32
	return sqldrill.StartsTLS(t, append([]byte{byte(len(packet)), 0, 0, 0}, packet...), request, "")
}

// A TLS mistake ends a call at its first attempt, with advice.
func TestMistakesAboutTLS(t *testing.T) {
	t.Parallel()
	const insecure = "\xff\x57\x0c#HY000Connections using insecure transport are prohibited" // 3159
	for dsn, want := range map[string]string{
		"root@tcp(" + startsTLS(t, greeting) + ")/mysql?tls=true": "is not trusted: add its CA",
		"root@tcp(" + sharedServer(t).Addr() + ")/mysql?tls=true": "the server does not use TLS: leave out tls",
		"root@tcp(" + startsTLS(t, insecure) + ")/mysql":          "the server wants TLS: use tls=true",
	} {
		sqldrill.RefusesAtOnce(t, dsn, mysqlstore.New(newDB(t, dsn)), want)
	}
}
