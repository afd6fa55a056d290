package mysqlstore

import (
	"database/sql"
	"fmt"
	"sync/atomic"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/sqlstore"
)

// A Store is a driver.Store in a MariaDB or MySQL database. It is safe for concurrent use.
type Store struct {
	pool    *sql.DB
	conns   *sqlstore.Pool // the same
	db      *sqlstore.Database
	turns   chan struct{} // see use
	kept    *kept
	opening atomic.Bool // see connect
	checked atomic.Bool // see checkSettings
	prefix  string
	text    statements
	fetches fetches
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
type config struct{ prefix string }

// TablePrefix sets the prefix for the tables' and procedures' names; the default is "dibs_". See
// CheckTablePrefix for the limits.
func TablePrefix(prefix string) Option { return Option{func(c *config) { c.prefix = prefix }} }

// New returns a store on the database. The store never closes db. The tables must exist: see
// Migrate. New does no I/O. With interpolateParams=true in the data source name, an operation needs
// a single round trip; otherwise it needs two. If db is nil, each store call returns ErrInvalid.
func New(db *sql.DB, options ...Option) *Store {
	c := config{prefix: "dibs_"}
	for _, o := range options {
		if o.apply != nil {
			o.apply(&c)
		}
	}
	s := &Store{
		pool: db, conns: poolOf(db), turns: make(chan struct{}, maxAtOnce), kept: newKept(func() int { return statsOf(db).MaxOpenConnections }),
		prefix: c.prefix,
	}
	s.db = sqlstore.NewDatabase(dialect{}, s.run)
	s.useVersion(Version)
	return s
}

func (s *Store) useVersion(version int) { s.text, s.db.SQL = statementsOf(s.prefix, version) }

// Groups implements driver.Grouper: a transaction can acquire any names.
func (s *Store) Groups(names []string) [][]string { return [][]string{names} }

// maxToken is the longest token and client that fits into the tables, in bytes.
const maxToken = 512

func check(r driver.AcquireRequest) error {
	if err := driver.CheckAcquire(r); err != nil {
		return err
	}
	return checkTexts("acquire", r.Name, r.Token, r.Client)
}

func checkTexts(op, name, token, client string) error {
	if len(token) > maxToken || len(client) > maxToken {
		return fmt.Errorf("%w: %s %q: the token or the client is longer than %d bytes", driver.ErrInvalid, op, name, maxToken)
	}
	return nil
}
