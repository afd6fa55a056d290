package pgstore

import (
	"sync/atomic"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/sqlstore"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Store is a driver.Store in a PostgreSQL database. It is safe for concurrent use.
type Store struct {
	conns  *ownConns
	schema string
	poll   bool
	db     *sqlstore.Database
	text   statements
	quiet  *quietNames

	// The default isolation level is not read committed, so each request is a transaction that sets
	// it.
	setsIsolation atomic.Bool
}

var (
	_ driver.Store          = (*Store)(nil)
	_ driver.Grouper        = (*Store)(nil)
	_ driver.Resizer        = (*Store)(nil)
	_ driver.Revoker        = (*Store)(nil)
	_ driver.WantedNotifier = (*Store)(nil)
	_ driver.Inspector      = (*Store)(nil)
	_ driver.Lister         = (*Store)(nil)
	_ driver.FenceReserver  = (*Store)(nil)
)

// An Option configures a Store made by New. The zero value changes nothing.
type Option struct{ apply func(*config) }

// A config contains the options' settings.
type config struct {
	schema string
	poll   bool
}

// Schema sets the tables' schema; the default is "dibs".
func Schema(name string) Option { return Option{func(c *config) { c.schema = name }} }

// Poll makes the store work without LISTEN. Waiters then poll, and each waiter polls less often
// when more requests wait ahead of it. Lease.Wanted detects a waiter only at the next renewal. Use
// this option with a connection pooler in transaction mode, such as PgBouncer: this mode does not
// support LISTEN.
func Poll() Option { return Option{func(c *config) { c.poll = true }} }

// New returns a store on the pool. The store never closes the pool. The tables must exist: see
// Migrate. New does no I/O. If the pool is nil, each store call returns ErrInvalid.
func New(pool *pgxpool.Pool, options ...Option) *Store {
	c := config{schema: "dibs"}
	for _, o := range options {
		if o.apply != nil {
			o.apply(&c)
		}
	}
	s := &Store{schema: c.schema, poll: c.poll, quiet: newQuietNames()}
	s.db = sqlstore.NewDatabase(dialect{}, s.transact)
	s.useVersion(Version)
	s.conns = newConns(pool, s.warm)
	return s
}

func (s *Store) useVersion(version int) { s.text, s.db.SQL = statementsOf(s.schema, version) }

// Groups implements driver.Grouper: a transaction can acquire any names.
func (s *Store) Groups(names []string) [][]string { return [][]string{names} }
