// Package doctor checks whether a PostgreSQL database is suitable for locks.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Target is a store, and how it uses its database.
type Target struct {
	Store      checkup.DatabaseStore
	Pool       *pgxpool.Pool
	Schema     string
	Poll       bool     // without LISTEN
	Version    int      // of the tables and functions
	Statements []string // that create them
}

// Examine examines the database of a store: see checkup.Examine.
func Examine(ctx context.Context, target Target) (checkup.Findings, error) {
	return checkup.CollectDatabase(ctx, target.Store, isDenied, func(d checkup.Database) {
		e := &examination{Database: d, target: target}
		e.Run(
			checkup.Check{Name: "facts", Run: e.readFacts},
			checkup.Check{Name: "server", Run: e.checkServer},
			checkup.Check{Name: "role", Run: e.checkRole},
			checkup.Check{Name: "durability", Run: e.checkDurability},
			checkup.Check{Name: "standbys", Run: e.checkStandbys},
			checkup.Check{Name: "sessions", Run: e.checkSessions},
			checkup.Check{Name: "load", Run: e.checkLoad},
			checkup.Check{Name: "pooler", Run: e.checkPooler},
			checkup.Check{Name: "tables", Run: e.checkTables},
			checkup.Check{Name: "functions", Run: e.checkFunctions},
			checkup.Check{Name: "lock", Run: e.checkLocking},
			checkup.Check{Name: "clock", Run: func() { e.CheckClock(e.Start, e.readTime()) }},
		)
	})
}

// isDenied reports whether the user lacks a right.
func isDenied(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == "42501"
}

// An examination runs the checks once, and stores their findings about the server.
type examination struct {
	checkup.Database

	target Target
	facts  facts
}

// queryRow sends a query without a prepared statement, because there may be a pooler.
func (e *examination) queryRow(text string, args ...any) pgx.Row {
	return e.target.Pool.QueryRow(e.Ctx, text, append([]any{pgx.QueryExecModeExec}, args...)...)
}

// query calls add for each row in a query's result, and stores the row's columns in into.
func (e *examination) query(into []any, add func(), text string, args ...any) error {
	rows, err := e.target.Pool.Query(e.Ctx, text, append([]any{pgx.QueryExecModeExec}, args...)...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, into, func() error {
		add()
		return nil
	})
	return err
}

func (e *examination) readTime() checkup.TimeSample {
	return checkup.ReadTime(func() (now time.Time, err error) {
		err = e.queryRow("SELECT clock_timestamp()").Scan(&now)
		return now, err
	})
}

// checkLocking tests whether locks work. Settings and rights only suggest it.
func (e *examination) checkLocking() {
	result, tried := e.TryLock(!e.target.Poll)
	if !tried {
		return
	}
	e.AddFirst(
		result.FailedLock(),
		checkup.If(result.Listen != nil, checkup.Warning, "notifications", fmt.Sprintf("LISTEN failed: %v", result.Listen), checkup.Late,
			"let this user open one more connection for each client; or use the option Poll"),
		result.FailedGrant("connect to the server itself, not to a pooler in transaction mode; or use the option Poll"),
	)
}
