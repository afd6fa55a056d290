// Package doctor examines a PostgreSQL database that a pgstore.Store uses: is it suitable for
// locks?
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Check checks the database of a store for problems that affect locks: settings that lose
// leases in a crash or a failover, a standby, a pooler, missing tables and rights, the clock.
// It also runs a smoke test: on a random name it acquires a lock, queues a second request for
// it, and hands it off.
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
	e := &examination{ctx: ctx, store: s, target: target, conn: conn}
	for _, check := range checks {
		check(e)
	}
	if ctx.Err() != nil {
		e.find(driver.Unchecked, "unfinished", fmt.Sprintf("the checks were not finished: %v", context.Cause(ctx)),
			"there may be more problems", "give Check more time")
	}
	slices.SortStableFunc(e.found, func(a, b driver.Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	return e.found, nil
}

// reach returns an error if the server cannot be reached.
func reach(ctx context.Context, s *pgstore.Store) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := s.HasTables(ctx)
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
	ctx    context.Context
	store  *pgstore.Store
	target pgstore.Target
	conn   *pgxpool.Conn
	found  driver.Findings

	facts    facts
	start    timeSample
	unusable bool // a finding says already that no lock can be acquired
}

func (e *examination) find(severity driver.Severity, subject, what, consequence, remedy string) {
	e.found = append(e.found, driver.Finding{Severity: severity, Subject: subject, What: what, Consequence: consequence, Remedy: remedy})
}

// A candidate is a finding that is reported if applies is set.
type candidate struct {
	applies                            bool
	severity                           driver.Severity
	subject, what, consequence, remedy string
}

// addAll reports all candidates that apply.
func (e *examination) addAll(candidates ...candidate) {
	for _, c := range candidates {
		if c.applies {
			e.find(c.severity, c.subject, c.what, c.consequence, c.remedy)
		}
	}
}

// addFirst reports the first candidate that applies.
func (e *examination) addFirst(candidates ...candidate) {
	if i := slices.IndexFunc(candidates, func(c candidate) bool { return c.applies }); i >= 0 {
		e.addAll(candidates[i])
	}
}

// unchecked reports a query that has failed, with what it was for. It reports whether there
// was an error.
func (e *examination) unchecked(subject, what string, err error) bool {
	if err == nil {
		return false
	}
	if e.ctx.Err() == nil { // otherwise the interruption is a finding of its own
		e.find(driver.Unchecked, subject, "a query failed: "+err.Error(), "not checked: "+what, "see the error")
	}
	return true
}

// queryRow sends a query without a prepared statement, because there may be a pooler.
func (e *examination) queryRow(text string, args ...any) pgx.Row {
	return e.conn.QueryRow(e.ctx, text, append([]any{pgx.QueryExecModeExec}, args...)...)
}

func (e *examination) query(text string, args ...any) (pgx.Rows, error) {
	return e.conn.Query(e.ctx, text, append([]any{pgx.QueryExecModeExec}, args...)...)
}
