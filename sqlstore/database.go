package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"math/rand/v2"
	"time"
)

// A Dialect formats a store's requests for a kind of database, and classifies its errors.
type Dialect interface {
	Name(name string) any                         // a verb's name
	Names(names []string) any                     // a verb's names, in any order
	Ordered(names []string) any                   // names whose states are returned in their order
	Text(text string) any                         // a token, a client or a reason
	Key(text string) any                          // a name or token for comparison with rows
	Pair(name, token string) []any                // the keys for the statement FenceOf
	Decode(text string) string                    // a name, token or reason in a row
	Repeatable(err error) bool                    // the server rolled a request back for a temporary reason
	Unavailable(op, name string, err error) error // an operation's error
}

// A Row is a row in a reply.
type Row interface{ Scan(into ...any) error }

// Rows are a reply's rows, from pgx or database/sql.
type Rows interface {
	Row
	Next() bool
	Err() error
}

// A Runner sends a statement on a store's connection, and calls read with the reply. An urgent
// statement does not wait for others.
type Runner func(ctx context.Context, urgent bool, text string, args []any, read func(Rows) error) error

// Statements are the statements common to all stores, as sent by a Database.
type Statements struct {
	Resize, Cancel, Revoke, Wanted, ReserveFences string
	FenceOf, Inspect, List, RemoveUnused          string
	Given                                         string // see AddGiven
}

// A Database executes a store's requests. It is safe for concurrent use.
type Database struct {
	Dialect
	SQL   Statements
	Run   Runner
	Limit *Limit

	unused unused
	given  given
}

// NewDatabase returns a Database.
func NewDatabase(d Dialect, run Runner) *Database {
	return &Database{Dialect: d, Run: run, Limit: NewLimit(), unused: unused{counted: rand.IntN(countedEach)}}
}

// A Verb is a statement with a time limit. After the limit it is void.
type Verb struct {
	Op, Name string
	Text     string
	Until    time.Time
	Urgent   bool // it does not wait until others are done
}

// A Scan reads a verb's row, whose first column is the server's time. It reports whether the
// request was void.
type Scan func(Row) (at int64, void bool, err error)

// Call executes a verb. args gets the time limit by the server's clock.
func (d *Database) Call(ctx context.Context, v Verb, args func(until int64) []any, scan Scan) error {
	err := d.Limit.Send(ctx, v.Until, func(ctx context.Context, until int64) (at int64, void bool, err error) {
		err = d.Run(ctx, v.Urgent, v.Text, args(until), one(func(row Row) (err error) {
			at, void, err = scan(row)
			return err
		}))
		return at, void, err
	}, d.Repeatable)
	if err != nil {
		return d.Unavailable(v.Op, v.Name, err)
	}
	return nil
}

// One reads the only row of a statement. The error is sql.ErrNoRows if there is no row.
func (d *Database) One(ctx context.Context, urgent bool, text string, args []any, into ...any) error {
	return d.Run(ctx, urgent, text, args, one(func(row Row) error { return row.Scan(into...) }))
}

func one(scan func(Row) error) func(Rows) error {
	return func(rows Rows) error {
		if !rows.Next() {
			return cmp.Or(rows.Err(), sql.ErrNoRows)
		}
		if err := scan(rows); err != nil {
			return err
		}
		rows.Next() // reads the end, which may be an error
		return rows.Err()
	}
}

// Each calls the function on for each row from a statement, after the row's columns are stored.
func (d *Database) Each(ctx context.Context, urgent bool, text string, args, into []any, on func()) error {
	return d.Run(ctx, urgent, text, args, func(rows Rows) error {
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				return err
			}
			on()
		}
		return rows.Err()
	})
}
