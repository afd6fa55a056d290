package mysqlstore_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/mysqltest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/mysqlstore"
)

func nothing(context.Context) error { return nil }

// The program's transactions use all other connections in the pool for longer than the TTL. All
// leases are renewed meanwhile, and released at once.
func TestTransactionsDelayNoRenewal(t *testing.T) {
	t.Parallel()
	const workers, ttl, work = 4, 3 * time.Second, 7 * time.Second
	db := newDB(t, sharedServer(t).DSN("mysql"))
	s := newStoreOn(t, db)
	db.SetMaxOpenConns(workers)
	locks := dibs.New(s, dibs.TTL(ttl))
	t.Cleanup(func() { locks.Close() })
	var all sync.WaitGroup
	for i := range workers { // one waits for a connection
		all.Go(func() {
			name := fmt.Sprint("account ", i)
			err := locks.Mutex(name).Do(t.Context(), func(ctx context.Context) error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				defer func() { _ = tx.Rollback() }()
				if err := s.Guard(ctx, tx); err != nil {
					return err
				}
				if _, err := tx.ExecContext(ctx, "DO sleep(?)", work.Seconds()); err != nil {
					return err
				}
				return tx.Commit()
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	all.Wait()
}

// A connection kept for leases returns to the pool when they have ended.
func TestKeptConnectionGoesBack(t *testing.T) {
	t.Parallel()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	locks := dibs.New(newStoreOn(t, db), dibs.TTL(2*time.Second))
	if err := locks.Mutex("n").Do(t.Context(), nothing); err != nil {
		t.Fatal(err)
	}
	if err := locks.Close(); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(10 * time.Second); db.Stats().InUse > 0; {
		if time.Now().After(end) {
			t.Fatalf("%d connections are in use", db.Stats().InUse)
		}
		<-time.After(10 * time.Millisecond) // between polls
	}
}

// Many callers at once must all be served, with and without a connection limit.
func TestManyCallers(t *testing.T) {
	if os.Getenv("DIBS_LONG") != "1" {
		t.Skip("it measures what a busy machine cannot do: DIBS_LONG=1 enables it")
	}
	t.Parallel()
	server, err := mysqltest.Start("--max-connections=151")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	for _, limit := range []int{0, 10} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			db := newDB(t, server.DSN("mysql"))
			db.SetMaxOpenConns(limit)
			sqldrill.ServesCallers(t, newStoreOn(t, db), 200)
		})
	}
}

// A round trip of 800 ms is shorter than the operation timeout. So locks should work.
func TestLongWay(t *testing.T) {
	if os.Getenv("DIBS_LONG") != "1" {
		t.Skip("it measures what a busy machine cannot do: DIBS_LONG=1 enables it")
	}
	t.Parallel()
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	prefix := mysqlstore.TablePrefix(fmt.Sprintf("dibs %d ", prefixes.Add(1)))
	if err := mysqlstore.New(newDB(t, sharedServer(t).DSN("mysql")), prefix).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Delay(400 * time.Millisecond)
	t.Cleanup(func() { proxy.Delay(0) })
	sqldrill.LocksOnALongWay(t, mysqlstore.New(newDB(t, mysqltest.DSN(proxy.Addr(), "mysql")), prefix))
}

// A waiter whose database is closed ends soon, with the reason.
func TestClosedDatabaseEndsWaits(t *testing.T) {
	t.Parallel()
	direct := newStoreOn(t, newDB(t, sharedServer(t).DSN("mysql")))
	db := newDB(t, sharedServer(t).DSN("mysql"))
	s := mysqlstore.New(db, mysqlstore.TablePrefix(direct.TablePrefixOf()))
	sqldrill.EndsWaitsWhenClosed(t, direct, s, func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}, "database is closed")
}
