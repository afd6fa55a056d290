package mysqlstore_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/mysqltest"
	"github.com/dibslock/dibs/mysqlstore"
)

// Without its tables and procedures, each operation should give advice.
func TestMissingTables(t *testing.T) {
	t.Parallel()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	prefix := fmt.Sprintf("incomplete_%d_", prefixes.Add(1)) // a test may run again
	incomplete := mysqlstore.New(db, mysqlstore.TablePrefix(prefix))
	if err := incomplete.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, "DROP TABLE "+prefix+"names")
	for kind, s := range map[string]*mysqlstore.Store{"no tables": mysqlstore.New(db, mysqlstore.TablePrefix("no such `prefix` ")), "one is missing": incomplete} {
		r := driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: driver.MinTTL, Weight: 1, Limit: 1}
		_, acquire := s.Acquire(t.Context(), r)
		_, resize := s.Resize(t.Context(), r)
		_, release := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: "t"})
		_, inspect := s.Inspect(t.Context(), "n")
		_, list := s.List(t.Context(), "*")
		_, revoke := s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Fence: 1})
		_, wanted := s.NotifyWanted(t.Context(), driver.WantedRequest{Name: "n", Token: "t", Client: "c"})
		for op, err := range map[string]error{
			"notify wanted": wanted, "acquire": acquire, "resize": resize, "release": release, "inspect": inspect, "list": list, "revoke": revoke,
			"cancel": s.Cancel(t.Context(), r),
			"extend": s.Extend(t.Context(), []driver.ExtendRequest{{Name: "n", Token: "t", TTL: time.Second}})[0],
		} {
			var u *driver.UnavailableError
			if !errors.As(err, &u) || !u.Refused || !errors.Is(err, driver.ErrNoTables) || !strings.Contains(err.Error(), "run Migrate") {
				t.Errorf("%s: %s: have %v, want ErrNoTables", kind, op, err)
			}
		}
	}
}

// The error for an unreachable server must say that nothing was sent. A server refusing the
// connection must be reported as such: another attempt would also fail. Each is a single line
// without the password. The server can name the user that it denies.
func TestErrorOfAConnection(t *testing.T) {
	t.Parallel()
	addr := sharedServer(t).Addr()
	for _, c := range []struct {
		dsn, want string
		refused   bool
	}{
		{"ann:secret@tcp(127.0.0.1:1)/db", `: dial tcp 127\.0\.0\.1:1: connect: connection refused$`, false},
		{"ann:secret@tcp(nowhere.invalid)/db", `: dial tcp: lookup nowhere\.invalid`, false},
		{"ann:secret@unix(/nowhere/socket)/db", `: dial unix /nowhere/socket: connect: no such file or directory$`, false},
		{"root@tcp(" + addr + ")/mysql?tls=true", `TLS`, true},
		{mysqltest.DSN(addr, "no_database"), `: Error 1049 \(42000\): Unknown database 'no_database'$`, true},
		{"nobody:secret@tcp(" + addr + ")/nothing", `: Error 1045 \(28000\): Access denied for user 'nobody'@`, true},
	} {
		s := mysqlstore.New(newDB(t, c.dsn))
		_, inspect := s.Inspect(t.Context(), "n")
		_, version := s.SchemaVersion(t.Context())
		for op, err := range map[string]error{"inspect": inspect, "version": version, "migrate": s.Migrate(t.Context())} {
			var u *driver.UnavailableError
			if !errors.As(err, &u) || u.Refused != c.refused || !u.Unsent || !u.Unreached || !regexp.MustCompile(c.want).MatchString(err.Error()) {
				t.Errorf("%s: have %#v, want that nothing was sent, %s, refused %t", op, err, c.want, c.refused)
				continue
			}
			if text := err.Error(); strings.ContainsAny(text, "\n\t") || strings.Contains(text, "ann") || strings.Contains(text, "secret") {
				t.Errorf("%s: have %q, want one line without credentials", op, text)
			}
		}
	}
}

// A server without a free connection received no request. It may have a connection later.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	sharedServer(t) // skips the test without a server
	server, err := mysqltest.Start("--max-connections=10")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := server.Execute("CREATE USER ann@'127.0.0.1'"); err != nil {
		t.Fatal(err)
	}
	db := newDB(t, "ann@tcp("+server.Addr()+")/")
	for range 10 {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() }) // the server ends before
	}
	_, err = mysqlstore.New(db).Inspect(t.Context(), "n")
	var u *driver.UnavailableError
	if !errors.As(err, &u) || !u.Unsent || !u.Unreached || u.Refused {
		t.Errorf("have %v, want that nothing was sent", err)
	}
}
