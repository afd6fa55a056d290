package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/sqlstore"
	"github.com/jackc/pgx/v5"
)

// ReleaseIn releases the leases that ctx carries when the transaction commits. So the next
// holder sees what the transaction has written, and a crash cannot separate the two. If the
// transaction is rolled back, the leases go on. ctx is that of Do or of Lease.Context.
//
// ReleaseIn is a Guard, too: it returns ErrLost if a lease is not held any more. The isolation
// level must be read committed; otherwise it returns ErrInvalid. A lease of a cohort is
// ErrInvalid, too.
//
// After the commit, return from Do or call Unlock, which returns nil. The context of the lease
// stays valid until then, at most for the TTL, although others can acquire the names.
func (s *Store) ReleaseIn(ctx context.Context, tx pgx.Tx) error { return s.releaseIn(ctx, inPgx(tx)) }

// ReleaseInSQL is ReleaseIn for a transaction of database/sql.
func (s *Store) ReleaseInSQL(ctx context.Context, tx *sql.Tx) error {
	return s.releaseIn(ctx, inSQL(tx))
}

func (s *Store) releaseIn(ctx context.Context, query queryRow) error {
	return sqlstore.Guard(ctx, s, func(name, token string) (held bool, err error) {
		if held, err = s.holds(ctx, query, name, token); err != nil || !held {
			return held, err
		}
		var done any
		err = query(ctx, s.text.releaseIn, toText(name), token).Scan(&done)
		if isCode(err, codeIsolation) {
			return false, fmt.Errorf("%w: release %q in a transaction: its isolation level must be read committed: %w", driver.ErrInvalid, name, err)
		}
		if err != nil {
			return false, unavailable("release", name, err)
		}
		s.given.add(name, token)
		return true, nil
	})
}

// errGiven means that a lease does not exist, and that a transaction was to release it.
var errGiven = errors.New("a transaction may have released the lease")

// A givenLeases is the leases of this process that end or have ended with a transaction. It is
// safe for concurrent use.
type givenLeases struct {
	mu     sync.Mutex
	leases map[[2]string]struct{} // by name and token
}

func (g *givenLeases) add(name, token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leases == nil {
		g.leases = make(map[[2]string]struct{})
	}
	g.leases[[2]string{name, token}] = struct{}{}
}

func (g *givenLeases) has(name, token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.leases[[2]string{name, token}]
	return ok
}

// remove reports whether the lease was there.
func (g *givenLeases) remove(name, token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.leases[[2]string{name, token}]
	delete(g.leases, [2]string{name, token})
	return ok
}
