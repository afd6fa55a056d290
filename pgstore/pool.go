package pgstore

import (
	"context"

	"github.com/dibslock/dibs/internal/sqlstore"
	"github.com/jackc/pgx/v5/pgxpool"
)

// poolOf returns the bookkeeping of a pool.
func poolOf(pool *pgxpool.Pool) *sqlstore.Pool {
	return sqlstore.NewPool("MaxConns, pool_max_conns in the URL", func() (used, size int) {
		stat := pool.Stat()
		return int(stat.AcquiredConns() + stat.ConstructingConns()), int(stat.MaxConns())
	})
}

// use calls do with a connection of the pool.
func (s *Store) use(ctx context.Context, do func(*pgxpool.Conn) error) error {
	take := func() (*pgxpool.Conn, error) { return s.pool.Acquire(ctx) }
	return sqlstore.Use(s.conns, take, give, do)
}

// give gives a connection back to the pool. One that has failed counts as used until the server
// has ended it, for up to 15 s.
func give(conn *pgxpool.Conn) (unused <-chan struct{}) {
	server := conn.Conn().PgConn()
	if server.IsClosed() {
		unused = server.CleanupDone()
	}
	conn.Release()
	return unused
}
