package pgstore_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/dibslock/dibs/pgstore"
)

// Without its tables, each operation should give advice.
func TestMissingTables(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL())
	if _, err := pool.Exec(t.Context(), `CREATE SCHEMA IF NOT EXISTS "without tables"`); err != nil {
		t.Fatal(err)
	}
	for _, schema := range []string{"without tables", "no such schema"} {
		s := pgstore.New(pool, pgstore.Schema(schema))
		_, acquire := s.Acquire(t.Context(), driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: driver.MinTTL, Weight: 1, Limit: 1})
		_, release := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: "t"})
		_, inspect := s.Inspect(t.Context(), "n")
		_, list := s.List(t.Context(), "*")
		_, revoke := s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Fence: 1})
		_, wanted := s.NotifyWanted(t.Context(), driver.WantedRequest{Name: "n", Token: "t", Client: "c"})
		for op, err := range map[string]error{"acquire": acquire, "release": release, "inspect": inspect, "list": list, "revoke": revoke, "notify wanted": wanted} {
			var u *driver.UnavailableError
			if !errors.As(err, &u) || !u.Refused || !errors.Is(err, driver.ErrNoTables) || !strings.Contains(err.Error(), "run Migrate") {
				t.Errorf("%s: %s: have %v, want ErrNoTables", schema, op, err)
			}
		}
	}
}

// The error for an unreachable server is a single line without credentials.
func TestErrorOfAConnection(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://ann:secret@127.0.0.1:1/db":                                                       `: dial tcp 127\.0\.0\.1:1: connect: connection refused$`,
		"postgres://ann:secret@127.0.0.1:1,127.0.0.1:2/db":                                           `: dial tcp 127\.0\.0\.1:1: connect: connection refused; dial tcp 127\.0\.0\.1:2: `,
		"postgres://ann:secret@nowhere.invalid/db":                                                   `: lookup nowhere\.invalid`,
		strings.Replace(pgtest.URL(sharedServer(t).Addr()), "sslmode=disable", "sslmode=require", 1): `TLS`,
		"postgres://postgres@" + sharedServer(t).Addr() + "/no_database":                             `: FATAL: database "no_database" does not exist \(SQLSTATE 3D000\)$`,
	} {
		_, err := pgstore.New(newPool(t, url)).Inspect(t.Context(), "n")
		var u *driver.UnavailableError
		if !errors.As(err, &u) || !u.Unsent || !u.Unreached || !regexp.MustCompile(want).MatchString(err.Error()) {
			t.Errorf("have %v, want %s", err, want)
			continue
		}
		if text := err.Error(); strings.ContainsAny(text, "\n\t") || strings.Contains(text, "ann") || strings.Contains(text, "secret") {
			t.Errorf("have %q, want one line without credentials", text)
		}
	}
}

// A statement prepared by another connection should be reported as a sign of a pooler.
func TestErrorOfAPooler(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(sharedServer(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	config.AfterRelease = func(conn *pgx.Conn) bool {
		_, err := conn.Exec(context.Background(), "DEALLOCATE ALL")
		return err == nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := newStoreOn(t, pool)
	if _, err := s.Inspect(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Inspect(t.Context(), "n"); err == nil || !strings.Contains(err.Error(), "dibs_poll=true") {
		t.Errorf("have %v, want what to do", err)
	}
}
