package exstore

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/mysqltest"
)

func TestOpenOnMariaDB(t *testing.T) {
	server, err := mysqltest.Start()
	if errors.Is(err, mysqltest.ErrNoServer) && os.Getenv("DIBS_REQUIRE_MARIADB") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	if err := server.Execute("CREATE DATABASE shop"); err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{"mysql", "mariadb"} { // the second time, the tables exist
		p, err := Open(t.Context(), scheme+"://root@"+server.Addr()+"/shop")
		if err != nil {
			t.Fatal(err)
		}
		if want := "mysql://" + server.Addr() + "/shop"; p.Description != want || !p.Shared() {
			t.Errorf("want %s and shared, have %s, %t", want, p.Description, p.Shared())
		}
		locks := dibs.New(p)
		lease, err := locks.Mutex("job").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(lease.Unlock(), locks.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestMySQLErrorsShowNoPassword(t *testing.T) {
	for rawURL, want := range map[string]string{
		"mysql://ann:s3cret@127.0.0.1:1/db": "cannot use mysql://127.0.0.1:1/db",
		"mariadb://ann:pa/s3cret@host/db":   "DIBS_URL",
	} {
		_, err := Open(t.Context(), rawURL)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: want one line with %s, without the password, have %v", rawURL, want, err)
		}
	}
}
