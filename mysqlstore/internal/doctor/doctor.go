// Package doctor checks whether a MariaDB or MySQL database is suitable for locks.
package doctor

import (
	"context"
	"database/sql"
	"time"

	"github.com/dibslock/dibs/checkup"
)

// A Target is a store, and how it uses its database.
type Target struct {
	Store      checkup.DatabaseStore
	DB         *sql.DB
	Version    int      // of the tables and procedures
	Statements []string // that create them
}

// Examine examines the database of a store: see checkup.Examine.
func Examine(ctx context.Context, target Target) (checkup.Findings, error) {
	return checkup.CollectDatabase(ctx, target.Store, func(error) bool { return false }, func(d checkup.Database) {
		e := &examination{Database: d, target: target}
		e.Run(
			checkup.Check{Name: "facts", Run: e.readFacts},
			checkup.Check{Name: "server", Run: e.checkServer},
			checkup.Check{Name: "role", Run: e.checkRole},
			checkup.Check{Name: "session", Run: e.checkSettings},
			checkup.Check{Name: "durability", Run: e.checkDurability},
			checkup.Check{Name: "replicas", Run: e.checkReplicas},
			checkup.Check{Name: "proxy", Run: e.checkProxy},
			checkup.Check{Name: "sessions", Run: e.checkSessions},
			checkup.Check{Name: "load", Run: e.checkLoad},
			checkup.Check{Name: "tables", Run: e.checkTables},
			checkup.Check{Name: "lock", Run: e.checkLocking},
			checkup.Check{Name: "clock", Run: func() { e.CheckClock(e.Start, e.readTime()) }},
		)
	})
}

// An examination runs the checks once, and stores their findings about the server.
type examination struct {
	checkup.Database

	target Target
	facts  facts
}

func (e *examination) queryRow(text string, args ...any) *sql.Row {
	return e.target.DB.QueryRowContext(e.Ctx, text, args...)
}

// pairs returns the rows from a query with two columns.
func (e *examination) pairs(text string, args ...any) (map[string]string, error) {
	rows, err := e.target.DB.QueryContext(e.Ctx, text, args...)
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
