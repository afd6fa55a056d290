package exstore

import (
	"errors"
	"os"
	"testing"

	"github.com/dibslock/dibs/internal/test/mysqltest"
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
		wantOpen(t, scheme+"://root@"+server.Addr()+"/shop", "mysql://"+server.Addr()+"/shop")
	}
}

func TestMySQLErrorsShowNoPassword(t *testing.T) {
	wantNoPassword(t, map[string]string{
		"mysql://ann:s3cret@127.0.0.1:1/db": "cannot use mysql://127.0.0.1:1/db",
		"mariadb://ann:pa/s3cret@host/db":   "DIBS_URL",
	})
}
