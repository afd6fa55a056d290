package mysqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"

	"github.com/dibslock/dibs/internal/sqlstore"
)

// poolOf returns the bookkeeping of a database's connections.
func poolOf(db *sql.DB) *sqlstore.Pool {
	return sqlstore.NewPool("SetMaxOpenConns of the *sql.DB", func() (used, size int) {
		stats := db.Stats()
		return stats.InUse, stats.MaxOpenConnections
	})
}

// use calls do with a connection of the pool. It repeats this, as a *sql.DB does, if the connection
// has ended before anything was sent.
func (s *Store) use(ctx context.Context, do func(*sql.Conn) error) (err error) {
	const tries = 3
	take := func() (*sql.Conn, error) { return s.db.Conn(ctx) }
	give := func(conn *sql.Conn) {
		_ = conn.Close() // it only goes back to the pool
	}
	for range tries {
		if err = sqlstore.Use(s.conns, take, give, do); !errors.Is(err, sqldriver.ErrBadConn) {
			return err
		}
	}
	return err
}
