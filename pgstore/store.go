package pgstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/sqlstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Store is a driver.Store in a PostgreSQL database. It is safe for concurrent use.
type Store struct {
	conns  *ownConns
	schema string
	poll   bool
	text   statements
	limit  *sqlstore.Limit
	unused *sqlstore.Unused
	quiet  *quietNames
	given  givenLeases

	// The default isolation level is not read committed, so each request is a transaction
	// that sets it.
	setsIsolation atomic.Bool
}

var (
	_ driver.Store         = (*Store)(nil)
	_ driver.FenceReserver = (*Store)(nil)
)

// An Option configures a Store that New makes. The zero value changes nothing.
type Option struct{ apply func(*config) }

// A config is what options change.
type config struct {
	schema string
	poll   bool
}

// Schema sets the schema of the tables; the default is "dibs".
func Schema(name string) Option { return Option{func(c *config) { c.schema = name }} }

// Poll makes the store work without LISTEN: waiters ask again at a pace that depends on how
// many wait. Lease.Wanted learns of a waiter at the next renewal. It is for a pooler in
// transaction mode, such as PgBouncer, which does not support LISTEN.
func Poll() Option { return Option{func(c *config) { c.poll = true }} }

// New returns a store on the pool, which stays the caller's: the store never closes it. The
// tables must exist: see Migrate. New panics if the pool is nil.
func New(pool *pgxpool.Pool, options ...Option) *Store {
	if pool == nil {
		panic("dibs: pgstore.New: the pool is nil")
	}
	c := config{schema: "dibs"}
	for _, o := range options {
		if o.apply != nil {
			o.apply(&c)
		}
	}
	s := &Store{
		schema: c.schema, poll: c.poll, text: statementsOf(c.schema, Version),
		limit: sqlstore.NewLimit(), unused: sqlstore.NewUnused(), quiet: newQuietNames(),
	}
	s.conns = newConns(pool, s.warm)
	return s
}

// Groups implements driver.Store: a transaction can acquire any names.
func (s *Store) Groups(names []string) [][]string { return [][]string{names} }

// A verb is a statement that has a time limit and is void after it.
type verb struct {
	op, name string
	text     string
	until    time.Time
	urgent   bool // it does not wait until others are done
}

// call executes a verb. args gets the time limit by the server's clock. scan reads the
// row, of which the first column is the server's time, and reports whether the request was
// void.
func (s *Store) call(ctx context.Context, v verb, args func(until int64) []any, scan func(pgx.Row) (at int64, void bool, err error)) error {
	err := s.limit.Send(ctx, v.until, func(ctx context.Context, until int64) (at int64, void bool, err error) {
		err = s.transact(ctx, v.urgent, v.text, args(until), oneRow(func(row pgx.Row) (err error) {
			at, void, err = scan(row)
			return err
		}))
		return at, void, err
	}, repeatable)
	if err != nil {
		return unavailable(v.op, v.name, err)
	}
	return nil
}
