// Package doctor examines a PostgreSQL database that a pgstore.Store uses: is it suitable for
// locks?
package doctor

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/checkup"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Check checks the database of a store for problems that affect locks. Such are settings that
// lose leases in a crash or a failover, a standby, a pooler, and missing tables or rights. It
// also runs a smoke test: on a random name it acquires a lock, queues a second request for it,
// and hands it off.
//
// It changes no setting and no lock of others. A check that could not be made is a finding
// too. The error means that the server could not be reached at all. Check returns soon after
// ctx ends, and within 30 s. docs/doctor.md lists the findings.
func Check(ctx context.Context, s *pgstore.Store) (driver.Findings, error) {
	const longest = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if err := reach(ctx, s); err != nil {
		return nil, err
	}
	target := s.Target()
	conn, err := target.Pool.Acquire(ctx)
	if err != nil {
		return nil, &driver.UnavailableError{Op: "doctor", Cause: err}
	}
	defer conn.Release()
	e := &examination{Report: checkup.Report{Ctx: ctx}, store: s, target: target, conn: conn}
	for _, check := range checks {
		check(e)
	}
	return e.Findings(), nil
}

// reach returns an error if the server cannot be reached.
func reach(ctx context.Context, s *pgstore.Store) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := s.SchemaVersion(ctx)
	if server := (*pgconn.PgError)(nil); errors.As(err, &server) && server.Code == "42501" {
		return nil // the user lacks a right, which is a finding
	}
	var u *driver.UnavailableError
	if errors.As(err, &u) {
		return &driver.UnavailableError{Op: "doctor", Cause: u.Cause, Refused: u.Refused}
	}
	return err
}

// The checks, in the order in which they run and are reported.
var checks = []func(*examination){
	(*examination).readFacts,
	(*examination).checkServer,
	(*examination).checkRole,
	(*examination).checkDurability,
	(*examination).checkStandbys,
	(*examination).checkSessions,
	(*examination).checkLoad,
	(*examination).checkPooler,
	(*examination).checkTables,
	(*examination).checkFunctions,
	(*examination).checkLocking,
	(*examination).checkClock,
}

// An examination is one run of the checks, and what they know about the server.
type examination struct {
	checkup.Report

	store  *pgstore.Store
	target pgstore.Target
	conn   *pgxpool.Conn

	facts    facts
	start    checkup.TimeSample
	unusable bool // a finding says already that no lock can be acquired
}

// queryRow sends a query without a prepared statement, because there may be a pooler.
func (e *examination) queryRow(text string, args ...any) pgx.Row {
	return e.conn.QueryRow(e.Ctx, text, append([]any{pgx.QueryExecModeExec}, args...)...)
}

func (e *examination) query(text string, args ...any) (pgx.Rows, error) {
	return e.conn.Query(e.Ctx, text, append([]any{pgx.QueryExecModeExec}, args...)...)
}
