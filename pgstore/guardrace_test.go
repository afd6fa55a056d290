package pgstore_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5/pgxpool"
)

// PostgreSQL loses a FOR KEY SHARE lock taken while an UPDATE moves the row to another page. Such
// updates are normal: waiters count themselves in the name's row. A guard must last nevertheless.
func TestGuardOutlivesMovingRows(t *testing.T) {
	t.Parallel()
	guards := 500
	if os.Getenv("DIBS_LONG") == "1" {
		guards = 3000
	}
	pool := newPool(t, sharedServer(t).URL())
	schema := fmt.Sprintf("race_%d", schemas.Add(1))
	s := newStoreOn(t, pool, pgstore.Schema(schema))
	locks := dibs.New(s, dibs.Timeout(10*time.Second))
	defer locks.Close()
	l, err := locks.Mutex("n").Lock(t.Context(), dibs.TTL(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var updating sync.WaitGroup
	updating.Go(func() {
		for ctx.Err() == nil {
			_, _ = pool.Exec(ctx, `UPDATE `+schema+`.names SET waiting = waiting WHERE name = 'n'`)
		}
	})
	updating.Go(func() { // old row versions stay, so the row must move
		for ctx.Err() == nil {
			_, _ = pool.Exec(ctx, `SELECT pg_current_xact_id(), pg_sleep(1)`)
		}
	})
	defer updating.Wait()
	defer stop()
	ended := 0
	for range guards {
		tx := beginGuarded(l.Context(), t, s, pool)
		if endsLease(ctx, t, pool, schema) {
			ended++
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if ended > 0 {
		t.Errorf("%d of %d guarded leases could be ended", ended, guards)
	}
	stop()
	updating.Wait()
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}

// endsLease reports whether another transaction can end the lease on n. It rolls its change back.
func endsLease(ctx context.Context, t *testing.T, pool *pgxpool.Pool, schema string) (ended bool) {
	t.Helper()
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, `SELECT `+schema+`.lock_v1(ARRAY['n'], `+schema+`.now_v1() + 10000000)`); err != nil {
		t.Fatal(err)
	}
	if err := tx.QueryRow(ctx, `SELECT `+schema+`.end_exclusive_v1('n')`).Scan(&ended); err != nil {
		t.Fatal(err)
	}
	return ended
}
