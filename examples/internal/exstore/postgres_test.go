package exstore

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/pgtest"
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
		p, err := Open(t.Context(), server.URL())
		if err != nil {
			t.Fatal(err)
		}
		if want := "postgres://" + server.Addr() + "/postgres"; p.Description != want || !p.Shared() {
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

func TestPostgresErrorsShowNoPassword(t *testing.T) {
	for rawURL, want := range map[string]string{
		"postgres://ann:s3cret@127.0.0.1:1/db": "cannot use postgres://127.0.0.1:1/db",
		"postgres://ann:pa/s3cret@host/db":     "DIBS_URL",
	} {
		_, err := Open(t.Context(), rawURL)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: want one line with %s, without the password, have %v", rawURL, want, err)
		}
	}
}
