package pgstore

import (
	"context"
	"time"

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
	return sqlstore.Use(s.conns, take, s.give, do)
}

// give returns a connection to the pool. One that was closed because its request had no reply
// leaves the pool instead. pgx asks the server for up to 15 s to cancel the request. The pool
// would count the connection until then, and be full after a few such requests.
func (s *Store) give(conn *pgxpool.Conn) {
	if !conn.Conn().IsClosed() {
		conn.Release()
		return
	}
	broken := conn.Hijack()
	go func() {
		if closing := s.pool.Config().BeforeClose; closing != nil {
			closing(broken) // as the pool does
		}
		const patience = 2 * time.Second
		limit := time.NewTimer(patience)
		defer limit.Stop()
		select {
		case <-broken.PgConn().CleanupDone():
		case <-limit.C:
			_ = broken.PgConn().Conn().Close()
		}
	}()
}
