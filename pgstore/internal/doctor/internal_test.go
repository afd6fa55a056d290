package doctor

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A transaction with an old snapshot is named.
func TestOldSnapshot(t *testing.T) {
	t.Parallel()
	server, err := pgtest.Start()
	if errors.Is(err, pgtest.ErrNoServer) && os.Getenv("DIBS_REQUIRE_POSTGRES") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	pool, err := pgxpool.New(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM pg_class"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		old   time.Duration
		found int
	}{{0, 1}, {time.Hour, 0}} {
		e := &examination{target: Target{Pool: pool}}
		e.Server = checkup.Server{Report: new(checkup.Report), Ctx: t.Context()}
		e.checkSnapshots(c.old)
		if found := e.Findings(); len(found) != c.found || c.found > 0 && found[0].Subject != "snapshots" {
			t.Errorf("a snapshot of %v is old: found\n%v", c.old, found)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
}

// No test server can be like these: old, another product, or with its own clock.
func TestServer(t *testing.T) {
	for _, c := range []struct {
		facts facts
		want  string
	}{
		{facts{version: "PostgreSQL 15.4 on x86_64-pc-linux-gnu", number: 150004}, ""},
		{facts{version: "PostgreSQL 12.0", number: 120000}, ""},
		{facts{version: "PostgreSQL 11.22", number: 110022}, "version"},
		{facts{version: "CockroachDB CCL v23.1", number: 130000}, "server"},
		{facts{version: "PostgreSQL 11.2-YB-2.20", number: 120000}, "server"},
		{facts{}, ""},
	} {
		e := &examination{facts: c.facts}
		e.Report = new(checkup.Report)
		e.checkServer()
		switch found := e.Findings(); {
		case c.want == "" && len(found) == 0:
		case len(found) != 1 || found[0].Subject != c.want:
			t.Errorf("%+v: want %q, found:\n%v", c.facts, c.want, found)
		}
	}
}
