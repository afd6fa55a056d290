package mysqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"

	"github.com/dibslock/dibs/sqlstore"
)

// ReleaseIn makes the transaction's commit also release a lease from this store. So the next holder
// sees the transaction's writes, and a crash cannot separate the release from the writes. If ctx
// contains several such leases, the commit releases the innermost. If MinHold or Once keeps the
// name unavailable after a release, it also does so after the commit. If the transaction is rolled
// back, the lease continues. ctx comes from Do or Lease.Context.
//
// ReleaseIn is also a Guard for all leases in ctx: it returns ErrLost if any of them is no longer
// held, and ErrInvalid in the same cases as Guard. It also returns ErrInvalid if a nested call and
// its caller share the lease (Reentrant): only the caller can end it. Any isolation level is
// allowed. If you set a savepoint before the call, a rollback to it undoes the release, but the
// names stay protected.
//
// After the commit, return from Do's function or call Unlock, which returns nil. Unlock notifies
// the waiters, because the server cannot notify at a commit. If the process dies before Unlock, a
// new request finds the name free. A waiter finds it free when it next repeats its request, at most
// 2.5 s later. Until Unlock the lease's context stays valid, for at most the TTL, although others
// can already acquire the names.
func (s *Store) ReleaseIn(ctx context.Context, tx *sql.Tx) error {
	return sqlstore.Guard(ctx, s, func(g sqlstore.Guarded) (held bool, err error) {
		if !g.Inner {
			return s.holds(ctx, tx, s.text.guard, g)
		}
		if err := g.CheckRelease(); err != nil {
			return false, err
		}
		address := []byte("release:" + rand.Text())
		held, err = s.holds(ctx, tx, s.text.releaseIn, g, sqlstore.Micros(g.Reserve), address)
		if held {
			s.db.AddGiven(g.Name, g.Token, address)
		}
		return held, err
	})
}
