package mysqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"

	"github.com/dibslock/dibs/sqlstore"
)

// ReleaseIn releases a lease when the transaction commits: the innermost lease in ctx from this
// store. So the next holder sees the transaction's writes, and a crash cannot separate the release
// from the writes. If MinHold or Once keeps a name unavailable, it stays unavailable. If the
// transaction is rolled back, the lease continues. ctx comes from Do or Lease.Context.
//
// ReleaseIn is also a Guard for all leases in ctx: it returns ErrLost if any of them is no longer
// held, and ErrInvalid in the same cases as Guard. It also returns ErrInvalid if a nested call and
// its caller share the lease (Reentrant): only the caller can end it. Any isolation level is
// allowed. The rollback to a savepoint older than the call undoes the release, but not the guard.
//
// After the commit, return from Do or call Unlock, which returns nil and notifies the waiters: the
// server cannot notify at a commit. If the process dies before, a new request finds the name free,
// and a waiter finds it free at its next heartbeat, at most 2.5 s later. Until Unlock the lease's
// context stays valid, at most for the TTL, although others can acquire the names.
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
