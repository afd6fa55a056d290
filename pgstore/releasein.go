package pgstore

import (
	"context"
	"database/sql"

	"github.com/dibslock/dibs/sqlstore"
	"github.com/jackc/pgx/v5"
)

// ReleaseIn makes the transaction's commit also release a lease from this store. So the next holder
// sees the transaction's writes, and a crash cannot separate the release from the writes. If ctx
// contains several such leases, the commit releases the innermost. If MinHold or Once keeps the
// name unavailable after a release, it also does so after the commit. If the transaction is rolled
// back, the lease continues. ctx comes from Do or Lease.Context.
//
// ReleaseIn is also a Guard for all leases in ctx: it returns ErrLost if any of them is no longer
// held, and ErrInvalid in the same cases as Guard. It also returns ErrInvalid
//
//   - if the isolation level is not read committed;
//   - if a nested call and its caller share the lease (Reentrant): only the caller can end it;
//   - if session_replication_role is replica.
//
// After ReleaseIn, the statement PREPARE TRANSACTION fails and rolls the transaction back.
//
// After the commit, return from Do's function or call Unlock, which returns nil. Do this soon:
// until then the lease's context stays valid, for at most the TTL, although others can already
// acquire the names.
func (s *Store) ReleaseIn(ctx context.Context, tx *sql.Tx) error { return s.releaseIn(ctx, inSQL(tx)) }

// ReleaseInPgx is ReleaseIn for a pgx transaction.
func (s *Store) ReleaseInPgx(ctx context.Context, tx pgx.Tx) error {
	return s.releaseIn(ctx, inPgx(tx))
}

const releaseInSQL = `SELECT dibs.release_in($1, $2, $3, $4)`

func (s *Store) releaseIn(ctx context.Context, query queryRow) error {
	return sqlstore.Guard(ctx, s, func(g sqlstore.Guarded) (held bool, err error) {
		if !g.Inner {
			return s.holds(ctx, query, g)
		}
		if err := g.CheckRelease(); err != nil {
			return false, err
		}
		var number *int64
		err = query(ctx, s.text.releaseIn, toText(g.Name), toText(g.Token), int64(g.Fence), sqlstore.Micros(g.Reserve)).Scan(&number)
		if err != nil {
			return false, notGuarded("release", g.Name, err)
		}
		if number != nil {
			s.db.AddGiven(g.Name, g.Token, *number)
		}
		return number != nil, nil
	})
}

// A number not yet reached by the server comes from another server, before a failover.
const givenSQL = `SELECT CASE WHEN $1 < txid_snapshot_xmax(txid_current_snapshot()) THEN txid_status($1) = 'committed' END IS TRUE`
