package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/sqlstore"
)

// poolOf returns the bookkeeping for a database's connections.
func poolOf(db *sql.DB) *sqlstore.Pool {
	return sqlstore.NewPool("SetMaxOpenConns of the *sql.DB", func() (used, size int) {
		stats := statsOf(db)
		return stats.InUse, stats.MaxOpenConnections
	})
}

func statsOf(db *sql.DB) sql.DBStats {
	if db == nil {
		return sql.DBStats{}
	}
	return db.Stats()
}

// check returns an error if the store was made of nothing.
func (s *Store) check() error {
	if s.pool == nil {
		return fmt.Errorf("%w: mysqlstore.New: the *sql.DB is nil", driver.ErrInvalid)
	}
	return nil
}

// maxAtOnce is how many requests a store sends at a time. A *sql.DB without a limit would open a
// connection for each, until the server refuses them.
const maxAtOnce = 8

// run is the store's sqlstore.Runner.
func (s *Store) run(ctx context.Context, urgent bool, text string, args []any, read func(sqlstore.Rows) error) error {
	use := s.use
	if urgent {
		use = s.useSoon
	}
	return use(ctx, func(conn *sql.Conn) error {
		rows, err := conn.QueryContext(ctx, text, args...)
		if err != nil {
			return err
		}
		err = read(rows)
		return cmp.Or(err, rows.Close()) // a procedure may fail after its rows
	})
}

// use calls do with a pool connection.
func (s *Store) use(ctx context.Context, do func(*sql.Conn) error) error {
	err := s.useInTurn(ctx, do)
	if errors.Is(err, errTooLate) {
		<-ctx.Done() // a retry would have even less time; the turn is for the next request
		return sqlstore.InFront(ctx.Err())
	}
	return err
}

// errTooLate means that a request had its turn too late to be sent.
var errTooLate = errors.New("too late")

func (s *Store) useInTurn(ctx context.Context, do func(*sql.Conn) error) error {
	begin := time.Now()
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-ctx.Done():
		return errTooLate
	}
	if ctx.Err() != nil || sqlstore.WaitedTooLong(ctx, begin) {
		return errTooLate
	}
	waits := s.conns.IsFull() // who waits for a connection to open stands in no line
	send := s.withSettings(ctx, do)
	return s.usePool(ctx, func(conn *sql.Conn) error {
		if waits && sqlstore.WaitedTooLong(ctx, begin) {
			return errTooLate
		}
		return send(conn)
	})
}

// withSettings returns do, with a check of the connection before it.
func (s *Store) withSettings(ctx context.Context, do func(*sql.Conn) error) func(*sql.Conn) error {
	return func(conn *sql.Conn) error {
		if err := s.checkSettings(ctx, conn); err != nil {
			return err
		}
		return do(conn)
	}
}

// useSoon calls do with a connection: with the kept connection if other work uses all others.
func (s *Store) useSoon(ctx context.Context, do func(*sql.Conn) error) error {
	if s.conns.IsFull() {
		if used, err := s.kept.use(ctx, do); used {
			return err
		}
	}
	return s.usePool(ctx, s.withSettings(ctx, do))
}

// usePool repeats a request, as a *sql.DB does, if the connection ended before anything was sent.
func (s *Store) usePool(ctx context.Context, do func(*sql.Conn) error) (err error) {
	if err := s.check(); err != nil {
		return err
	}
	const tries = 3
	give := func(conn *sql.Conn) {
		if err != nil || !s.kept.put(conn) {
			_ = conn.Close() // it only goes back to the pool
		}
	}
	for range tries {
		err = sqlstore.Use(s.conns, func() (*sql.Conn, error) { return s.connect(ctx) }, give, func(conn *sql.Conn) error {
			err = do(conn)
			return err
		})
		if !errors.Is(err, sqldriver.ErrBadConn) {
			break
		}
	}
	if isClosed(err) {
		s.kept.drop()
	}
	return err
}

// connect returns a pool connection. On a slow network a new connection can take longer to open
// than a request can last, and is lost then. So another is opened for the next request.
func (s *Store) connect(ctx context.Context) (*sql.Conn, error) {
	conn, err := s.pool.Conn(ctx)
	if errors.Is(err, context.DeadlineExceeded) && !s.conns.IsFull() && s.opening.CompareAndSwap(false, true) {
		go func() {
			defer s.opening.Store(false)
			const longest = 10 * time.Second
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest)
			defer cancel()
			if conn, err := s.pool.Conn(ctx); err == nil {
				_ = conn.Close() // it goes to the pool
			}
		}()
	}
	return conn, err
}
