package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// A querier is what sends statements: a connection, or oneTrip.
type querier interface {
	Query(ctx context.Context, text string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, text string, args ...any) pgx.Row
}

// A oneTrip sends a statement in a transaction of its own with read committed isolation, whatever the
// default is. BEGIN, the statement and COMMIT are one round trip: otherwise a process that is stopped
// in between would keep names locked.
type oneTrip struct{ conn *pgx.Conn }

// Query implements querier.
func (o oneTrip) Query(ctx context.Context, text string, args ...any) (pgx.Rows, error) {
	var batch pgx.Batch
	batch.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	batch.Queue(text, args...)
	batch.Queue("COMMIT")
	r := &tripRows{conn: o.conn, results: o.conn.SendBatch(ctx, &batch)}
	if _, r.err = r.results.Exec(); r.err == nil {
		rows, err := r.results.Query()
		r.Rows, r.err = rows, err
	}
	if r.err != nil {
		r.end(ctx)
		return nil, r.err
	}
	return r, nil
}

// QueryRow implements querier.
func (o oneTrip) QueryRow(ctx context.Context, text string, args ...any) pgx.Row {
	rows, err := o.Query(ctx, text, args...)
	return tripRow{rows, err}
}

// tripRows are the rows of the statement. They are valid once Close has seen that the commit succeeded.
type tripRows struct {
	pgx.Rows
	conn    *pgx.Conn
	results pgx.BatchResults
	err     error
}

// Next implements pgx.Rows.
func (r *tripRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Close implements pgx.Rows.
func (r *tripRows) Close() {
	r.Rows.Close()
	r.end(context.Background())
}

// Err implements pgx.Rows.
func (r *tripRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

// end ends the transaction, in the server and here.
func (r *tripRows) end(ctx context.Context) {
	const failed = 'E'
	if err := r.results.Close(); r.err == nil {
		r.err = err
	}
	if r.conn.PgConn().TxStatus() == failed {
		_, _ = r.conn.Exec(ctx, "ROLLBACK") // a connection that is not idle afterwards is closed
	}
}

// A tripRow is the only row of a statement.
type tripRow struct {
	rows pgx.Rows
	err  error
}

// Scan implements pgx.Row.
func (r tripRow) Scan(into ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(into...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
