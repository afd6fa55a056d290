package main

import (
	"context"
	_ "embed"
	"strings"

	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed sql/bare.sql
var bareSQL string

// Settings for a PostgreSQL server.
const (
	durable = "fsync=on" // each commit waits for the disk, as it does by default
	counted = "shared_preload_libraries=pg_stat_statements"
	logged  = "log_autovacuum_min_duration=0"
)

// withPostgres returns a measurement that starts its own server with these settings.
func withPostgres(measure func(*fixture, config) ([]*table, error), settings ...string) func(*fixture, config) ([]*table, error) {
	return func(_ *fixture, c config) ([]*table, error) {
		b, err := newPostgres(settings...)
		if err != nil {
			return nil, err
		}
		defer b.close()
		measured, err := measure(b, c)
		for _, t := range measured {
			t.server = b.version
			t.about = append(t.about, "Settings of the server: "+strings.Join(settings, ", ")+".")
		}
		return measured, err
	}
}

// newPostgres starts a PostgreSQL server with all peers' tables.
func newPostgres(settings ...string) (*fixture, error) {
	started, err := pgtest.Start(settings...)
	if err != nil {
		return nil, err
	}
	s := &pgServer{Server: started}
	b := &fixture{at: "@postgres", ping: "commit"}
	for _, setting := range settings {
		s.counts = s.counts || setting == counted
	}
	if err := b.add(s); err != nil {
		return nil, err
	}
	if b.version, err = s.setup(); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// A pgServer is a PostgreSQL server.
type pgServer struct {
	*pgtest.Server
	admin  *pgx.Conn
	pid    int  // its first process
	counts bool // whether pg_stat_statements is available
}

// setup creates the tables and returns the version.
func (s *pgServer) setup() (version string, err error) {
	ctx := context.Background()
	if s.admin, err = pgx.Connect(ctx, s.URL()); err != nil {
		return "", err
	}
	pool, err := pgxpool.New(ctx, s.URL())
	if err != nil {
		return "", err
	}
	defer pool.Close()
	if err := pgstore.New(pool).Migrate(ctx); err != nil {
		return "", err
	}
	if s.counts {
		if _, err := s.admin.Exec(ctx, "CREATE EXTENSION pg_stat_statements"); err != nil {
			return "", err
		}
	}
	if _, err := s.admin.Exec(ctx, bareSQL); err != nil {
		return "", err
	}
	const pid = "SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)::integer"
	if err := s.admin.QueryRow(ctx, pid).Scan(&s.pid); err != nil {
		return "", err
	}
	number, _, _ := strings.Cut(s.admin.PgConn().ParameterStatus("server_version"), " ")
	return "PostgreSQL " + number, nil
}

// Stop implements server.
func (s *pgServer) Stop() {
	if s.admin != nil {
		_ = s.admin.Close(context.Background())
	}
	_ = s.Close() // its directory is temporary
}

// work implements server. The calls are "statements" from all clients, "renewals", which are
// statements for renewing leases, and "renewed", the renewed leases.
func (s *pgServer) work(u *usage) error {
	u.cpu += cpuOf(s.pid)
	if !s.counts {
		return nil
	}
	var statements, renewals, renewed float64
	err := s.admin.QueryRow(context.Background(), `
		SELECT coalesce(sum(calls), 0), coalesce(sum(calls) FILTER (WHERE renews), 0), coalesce(sum(rows) FILTER (WHERE renews), 0)
		FROM (SELECT *, query LIKE '%Extends leases%' OR query LIKE '%bare_locks SET expires%' AS renews FROM pg_stat_statements) AS s
		WHERE toplevel AND query NOT LIKE '%pg_stat_statements%' AND query NOT LIKE '%postmaster.pid%'`).Scan(&statements, &renewals, &renewed)
	u.calls["statements"] += statements
	u.calls["renewals"] += renewals
	u.calls["renewed"] += renewed
	return err
}

// Pause implements server.
func (s *pgServer) Pause() error { return pause(s.pid) }

// Resume implements server.
func (s *pgServer) Resume() error { return resume(s.pid) }

// held implements server.
func (s *pgServer) held(text string) (n int, err error) {
	err = s.admin.QueryRow(context.Background(), `
		SELECT (SELECT count(*) FROM dibs.names WHERE strpos(name, $1) > 0 AND token <> '' AND expires > dibs.now_v1())
		+ (SELECT count(*) FROM bare_locks WHERE strpos(name, $1) > 0 AND expires > now())`, text).Scan(&n)
	return n, err
}

// clear implements server.
func (s *pgServer) clear() error {
	_, err := s.admin.Exec(context.Background(), "TRUNCATE dibs.names, dibs.holders, dibs.waiters, bare_locks, bare_queues")
	return err
}
