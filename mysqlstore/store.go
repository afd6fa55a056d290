package mysqlstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/sqlstore"
)

// A Store is a driver.Store in a MariaDB or MySQL database. It is safe for concurrent use.
type Store struct {
	db      *sql.DB
	conns   *sqlstore.Pool // the same
	turns   chan struct{}  // see use
	kept    *kept
	opening atomic.Bool // see connect
	checked atomic.Bool // see checkSettings
	prefix  string
	text    statements
	limit   *sqlstore.Limit
	unused  *sqlstore.Unused
	fetches fetches
}

var (
	_ driver.Store         = (*Store)(nil)
	_ driver.FenceReserver = (*Store)(nil)
)

// An Option configures a Store that New makes. The zero value changes nothing.
type Option struct{ apply func(*config) }

// A config is what options change.
type config struct{ prefix string }

// Prefix sets the prefix of the names of tables and procedures; the default is "dibs_". See
// CheckPrefix for the limits.
func Prefix(prefix string) Option { return Option{func(c *config) { c.prefix = prefix }} }

// New returns a store on the database, which stays the caller's: the store never closes it. The
// tables must exist: see Migrate. With interpolateParams=true in the data source name, an
// operation is one round trip; otherwise it is two. New panics if the database is nil.
func New(db *sql.DB, options ...Option) *Store {
	if db == nil {
		panic("dibs: mysqlstore.New: the database is nil")
	}
	c := config{prefix: "dibs_"}
	for _, o := range options {
		if o.apply != nil {
			o.apply(&c)
		}
	}
	return &Store{
		db: db, conns: poolOf(db), turns: make(chan struct{}, maxAtOnce), kept: newKept(func() int { return db.Stats().MaxOpenConnections }),
		prefix: c.prefix, text: statementsOf(c.prefix, Version), limit: sqlstore.NewLimit(), unused: sqlstore.NewUnused(),
	}
}

// Groups implements driver.Store: a transaction can acquire any names.
func (s *Store) Groups(names []string) [][]string { return [][]string{names} }

// A verb is a procedure that has a time limit and is void after it.
type verb struct {
	op, name string
	text     string
	until    time.Time
	soon     bool // it does not wait for other work
}

// call calls the procedure of a verb. args gets the time limit by the server's clock. scan reads
// the row, of which the first column is the server's time, and reports whether the
// request was void.
func (s *Store) call(ctx context.Context, v verb, args func(until int64) []any, scan func(*sql.Row) (at int64, void bool, err error)) error {
	err := s.limit.Send(ctx, v.until, func(ctx context.Context, until int64) (at int64, void bool, err error) {
		use := s.use
		if v.soon {
			use = s.useSoon
		}
		err = use(ctx, func(conn *sql.Conn) (err error) {
			at, void, err = scan(conn.QueryRowContext(ctx, v.text, args(until)...))
			return err
		})
		return at, void, err
	}, repeatable)
	if err != nil {
		return unavailable(v.op, v.name, err)
	}
	return nil
}

// maxToken is the longest token and client that the tables can store, in bytes.
const maxToken = 512

func check(c driver.AcquireRequest) error {
	if err := driver.CheckAcquire(c); err != nil {
		return err
	}
	if len(c.Token) > maxToken || len(c.Client) > maxToken {
		return fmt.Errorf("%w: acquire %q: the token or the client is longer than %d bytes", driver.ErrInvalid, c.Name, maxToken)
	}
	return nil
}

// listOf returns names as the procedures read them: in hexadecimal, in order, each with a comma after
// it. So a name is never converted between character sets.
func listOf(names ...string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(slices.Values(names)) {
		b.WriteString(hex.EncodeToString([]byte(name)))
		b.WriteByte(',')
	}
	return b.String()
}

func hexOf(name string) string { return hex.EncodeToString([]byte(name)) }
