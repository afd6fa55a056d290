package pgstore

import (
	"context"

	"github.com/dibslock/dibs/sqlstore"
	"github.com/jackc/pgx/v5"
)

// transact runs a statement in its own transaction, with read committed isolation. An urgent
// statement does not wait until others are done.
func (s *Store) transact(ctx context.Context, urgent bool, text string, args []any, read func(sqlstore.Rows) error) error {
	return s.conns.use(ctx, urgent, func(conn *pgx.Conn) error {
		if !s.setsIsolation.Load() {
			err := query(ctx, conn, text, args, read)
			if !isCode(err, codeIsolation) {
				return err
			}
			s.setsIsolation.Store(true)
		}
		return queryCommitted(ctx, conn, text, args, read)
	})
}

// query sends a statement, and reads its rows.
func query(ctx context.Context, conn *pgx.Conn, text string, args []any, read func(sqlstore.Rows) error) error {
	rows, err := conn.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return read(rows)
}

// queryCommitted is query with read committed isolation, whatever the default. BEGIN, the statement
// and COMMIT are a single round trip: otherwise a process stopped in between would keep names
// locked.
func queryCommitted(ctx context.Context, conn *pgx.Conn, text string, args []any, read func(sqlstore.Rows) error) error {
	const failed = 'E'
	var batch pgx.Batch
	batch.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	batch.Queue(text, args...).Query(func(rows pgx.Rows) error { return read(rows) })
	batch.Queue("COMMIT")
	err := conn.SendBatch(ctx, &batch).Close()
	if conn.PgConn().TxStatus() == failed {
		_, _ = conn.Exec(ctx, "ROLLBACK") // a connection should be idle afterwards, or it is closed
	}
	return err
}
