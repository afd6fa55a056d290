package exstore

import (
	"errors"
	"os"
	"testing"

	"github.com/dibslock/dibs/internal/test/pgtest"
)

func TestOpenOnPostgres(t *testing.T) {
	server, err := pgtest.Start()
	if errors.Is(err, pgtest.ErrNoServer) && os.Getenv("DIBS_REQUIRE_POSTGRES") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	for range 2 { // the second time, the tables exist
		wantOpen(t, server.URL(), "postgres://"+server.Addr()+"/postgres")
	}
}

func TestPostgresErrorsShowNoPassword(t *testing.T) {
	wantNoPassword(t, map[string]string{
		"postgres://ann:s3cret@127.0.0.1:1/db": "cannot use postgres://127.0.0.1:1/db",
		"postgres://ann:pa/s3cret@host/db":     "DIBS_URL",
	})
}
