// Package doctor examines a MariaDB or MySQL database that a mysqlstore.Store uses: is it
// suitable for locks?
package doctor

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/checkup"
	"github.com/dibslock/dibs/mysqlstore"
)

// Check checks the database of a store for problems that affect locks: settings that lose
// leases in a crash or a failover, a replica, missing tables and rights, the clock. It also
// runs a smoke test: on a random name it acquires a lock, queues a second request for it,
// and hands it off.
//
// It changes no setting and no lock of others. A check that could not be made is a finding
// too. The error means that the server could not be reached at all. Check returns soon after
// ctx ends, and within 30 s. docs/doctor.md lists the findings.
func Check(ctx context.Context, s *mysqlstore.Store) (driver.Findings, error) {
	const longest = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if err := reach(ctx, s); err != nil {
		return nil, err
	}
	conn, err := s.Target().DB.Conn(ctx)
	if err != nil {
		return nil, &driver.UnavailableError{Op: "doctor", Cause: err}
	}
	defer conn.Close()
	e := &examination{Report: checkup.Report{Ctx: ctx}, store: s, target: s.Target(), conn: conn}
	for _, check := range checks {
		check(e)
	}
	return e.Findings(), nil
}

// reach returns an error if the server cannot be reached.
func reach(ctx context.Context, s *mysqlstore.Store) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := s.SchemaVersion(ctx)
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
	(*examination).checkSettings,
	(*examination).checkDurability,
	(*examination).checkReplicas,
	(*examination).checkProxy,
	(*examination).checkSessions,
	(*examination).checkLoad,
	(*examination).checkTables,
	(*examination).checkLocking,
	(*examination).checkClock,
}

// An examination is one run of the checks, and what they know about the server.
type examination struct {
	checkup.Report

	store  *mysqlstore.Store
	target mysqlstore.Target
	conn   *sql.Conn

	facts    facts
	start    checkup.TimeSample
	unusable bool // a finding says already that no lock can be acquired
}

func (e *examination) queryRow(text string, args ...any) *sql.Row {
	return e.conn.QueryRowContext(e.Ctx, text, args...)
}

// pairs returns the rows of a query with two columns.
func (e *examination) pairs(text string, args ...any) (map[string]string, error) {
	rows, err := e.conn.QueryContext(e.Ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	pairs := make(map[string]string)
	for rows.Next() {
		var name string
		var value sql.NullString
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		pairs[name] = value.String
	}
	return pairs, rows.Err()
}

func (e *examination) readTime() checkup.TimeSample {
	return checkup.ReadTime(func() (time.Time, error) {
		var micros int64
		err := e.queryRow("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))").Scan(&micros)
		return time.UnixMicro(micros), err
	})
}

func (e *examination) checkClock() { e.CheckClock(e.start, e.readTime()) }
