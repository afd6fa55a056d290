package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/sqlstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/puddle/v2"
)

// A Store opens its own connections: a program's transaction never delays a renewal, and a hanging
// request never takes a place in the program's pool. The pool determines how to connect, how many
// connections there can be, and when they close: with the pool.

// A conn is a store's connection.
type conn struct {
	*pgx.Conn
	expires time.Time // as the pool's do, or zero
	used    bool      // by a request
}

func (c *conn) isEnded() bool {
	return c.IsClosed() || !c.expires.IsZero() && time.Now().After(c.expires)
}

// ownConns contains a store's connections, and their limits from a pool.
type ownConns struct {
	pool  *pgxpool.Pool // nil if the store was made of nothing
	hooks *pgxpool.Config
	warm  func(context.Context, *pgx.Conn) // prepares a connection for its requests, in two round trips
	all   *sqlstore.Conns[*conn]

	inUse  atomic.Bool // the pool had connections when it was last looked at
	closed atomic.Bool // the pool is closed

	fastest atomic.Int64 // the fastest request on the last opened connection, in ns
}

// newConns returns connections configured as the pool's. There are at most as many, and at most 16.
func newConns(pool *pgxpool.Pool, warm func(context.Context, *pgx.Conn)) *ownConns {
	if pool == nil {
		return &ownConns{}
	}
	const most = 16
	c := &ownConns{pool: pool, hooks: pool.Config(), warm: warm}
	c.all = sqlstore.NewConns(min(int(c.hooks.MaxConns), most), c.open, (*conn).isEnded, c.shut)
	return c
}

// check returns an error if the store was made of nothing.
func (c *ownConns) check() error {
	if c.pool == nil {
		return fmt.Errorf("%w: pgstore.New: the pool is nil", driver.ErrInvalid)
	}
	return nil
}

// connect opens a connection as the pool does.
func (c *ownConns) connect(ctx context.Context) (*pgx.Conn, error) {
	config := c.hooks.ConnConfig.Copy()
	if c.hooks.BeforeConnect != nil {
		if err := c.hooks.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	opened, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if c.hooks.AfterConnect != nil {
		if err := c.hooks.AfterConnect(ctx, opened); err != nil {
			_ = opened.Close(ctx)
			return nil, err
		}
	}
	return opened, nil
}

func (c *ownConns) open(ctx context.Context) (*conn, error) {
	opened, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	c.warm(ctx, opened)
	c.fastest.Store(int64(time.Since(begin) / 2))
	own := &conn{Conn: opened}
	if c.hooks.MaxConnLifetime > 0 {
		own.expires = time.Now().Add(c.hooks.MaxConnLifetime)
	}
	return own, nil
}

// shut closes a connection. pgx asks the server for up to 15 s to cancel a request without a reply.
func (c *ownConns) shut(old *conn) {
	const patience = 2 * time.Second
	if c.hooks.BeforeClose != nil {
		c.hooks.BeforeClose(old.Conn)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = old.Close(ctx)
	select {
	case <-old.PgConn().CleanupDone():
	case <-ctx.Done():
		_ = old.PgConn().Conn().Close()
	}
}

// use calls do with a connection. Urgent requests have a connection reserved for them.
func (c *ownConns) use(ctx context.Context, urgent bool, do func(*pgx.Conn) error) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.isClosed(ctx) {
		return sqlstore.Unsent(puddle.ErrClosedPool)
	}
	begin := time.Now()
	err := c.all.Use(ctx, urgent, func(own *conn) error {
		// Who waited for a connection to open stood in no line: the server may answer at once.
		if own.used && sqlstore.WaitedTooLong(ctx, begin) || c.isTooLate(ctx, begin) {
			return errTooLate
		}
		own.used = true
		if err := c.prepare(ctx, own.Conn); err != nil {
			_ = own.Close(ctx)
			return sqlstore.Unsent(err)
		}
		sent := time.Now()
		err := do(own.Conn)
		if took := int64(time.Since(sent)); err == nil && took < c.fastest.Load() {
			c.fastest.Store(took)
		}
		if c.hooks.AfterRelease != nil && !c.hooks.AfterRelease(own.Conn) || own.PgConn().TxStatus() != 'I' {
			_ = own.Close(ctx)
		}
		return err
	})
	if err == errTooLate { //nolint:errorlint // it is not wrapped
		<-ctx.Done() // a retry would have even less time
	}
	return err
}

var errTooLate = sqlstore.InFront(context.DeadlineExceeded)

// isTooLate reports whether too little time is left for a request waiting since begin. Sending it
// would only break the connection: pgx closes a connection with a late reply. The next request can
// use it.
func (c *ownConns) isTooLate(ctx context.Context, begin time.Time) bool {
	end, limited := ctx.Deadline()
	fastest := time.Duration(c.fastest.Load())
	return limited && time.Until(end) < fastest && time.Since(begin) > fastest/10
}

// errNotPrepared means that a hook of the pool rejected the connection.
var errNotPrepared = errors.New("PrepareConn or BeforeAcquire of the pool has rejected the connection")

// prepare calls the hooks that the pool calls before it hands a connection out.
func (c *ownConns) prepare(ctx context.Context, own *pgx.Conn) error {
	ok := true
	switch {
	case c.hooks.PrepareConn != nil:
		var err error
		if ok, err = c.hooks.PrepareConn(ctx, own); err != nil {
			return err
		}
	case c.hooks.BeforeAcquire != nil: //nolint:staticcheck // a pool still calls it
		ok = c.hooks.BeforeAcquire(ctx, own) //nolint:staticcheck // the same
	}
	if !ok {
		return errNotPrepared
	}
	return nil
}

// isClosed reports whether the pool is closed. Only a request to the pool can find out, and would
// open a connection if the pool has none. So the store asks only after the pool lost its
// connections.
func (c *ownConns) isClosed(ctx context.Context) bool {
	if c.pool.Stat().TotalConns() > 0 {
		c.inUse.Store(true)
		return false
	}
	if c.closed.Load() || !c.inUse.CompareAndSwap(true, false) {
		return c.closed.Load()
	}
	taken, err := c.pool.Acquire(ctx)
	if err == nil {
		taken.Release()
	}
	if errors.Is(err, puddle.ErrClosedPool) {
		c.closed.Store(true)
		c.all.Close()
	}
	return c.closed.Load()
}
