package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// newDrill returns a drill in a new schema. Its clients have their own pools, with a URL.
func newDrill(t *testing.T, direct *pgxpool.Pool, url string, options ...pgstore.Option) (d sqldrill.Drill, schema string) {
	t.Helper()
	schema = fmt.Sprintf("drill_%d", schemas.Add(1))
	options = append(options, pgstore.Schema(schema))
	return sqldrill.Drill{
		Names:  []string{"n"},
		Open:   func() driver.Store { return pgstore.New(newPool(t, url), options...) },
		Direct: newStoreOn(t, direct, options...),
		Time:   4 * time.Second,
	}, schema
}

// ownServer starts a server for tests to stop.
func ownServer(t *testing.T, settings ...string) *pgtest.Server {
	t.Helper()
	sharedServer(t) // skips the test without a server
	server, err := pgtest.Start(settings...)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, server)
	return server
}

func closeAfter(t *testing.T, server *pgtest.Server) {
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The server forgets nothing when it is killed.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	d, _ := newDrill(t, newPool(t, server.URL()), server.URL())
	d.Time = 6 * time.Second
	d.Faults = sqldrill.Again(time.Second, func() {
		server.Kill()
		if err := server.Restart(); err != nil {
			t.Error(err)
		}
	})
	d.RunHeld(t)
}

// Each connection may be ended at any time.
func TestBackendsAreTerminated(t *testing.T) {
	t.Parallel()
	const application = "terminated"
	admin := newPool(t, sharedServer(t).URL())
	d, _ := newDrill(t, admin, sharedServer(t).URL()+"&application_name="+application)
	d.Faults = sqldrill.Again(50*time.Millisecond, func() {
		const text = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND random() < 0.2"
		if _, err := admin.Exec(t.Context(), text, application); err != nil {
			t.Error(err)
		}
	})
	d.Run(t)
}

// The network may lose, delay and cut.
func TestNetworkFails(t *testing.T) {
	t.Parallel()
	for kind, options := range map[string][]pgstore.Option{"listen": nil, "poll": {pgstore.Poll()}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, sharedServer(t).Addr())
			d, _ := newDrill(t, newPool(t, sharedServer(t).URL()), pgtest.URL(proxy.Addr()), options...)
			d.Time = 8 * time.Second
			d.Faults = sqldrill.Network(proxy)
			d.Run(t)
		})
	}
}

// The server can roll back any transaction, because it conflicts with another.
func TestTransactionsAreRolledBack(t *testing.T) {
	t.Parallel()
	for kind, code := range map[string]string{"serialization failure": "40001", "deadlock": "40P01"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			admin := newPool(t, sharedServer(t).URL())
			d, schema := newDrill(t, admin, sharedServer(t).URL())
			for _, text := range []string{
				"CREATE SEQUENCE %[1]s.failures",
				`CREATE FUNCTION %[1]s.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				   PERFORM nextval('%[1]s.failures');
				   RAISE EXCEPTION 'injected' USING ERRCODE = '%[2]s';
				 END $$`,
				`CREATE TRIGGER fail BEFORE UPDATE ON %[1]s.names FOR EACH ROW WHEN (random() < 0.05) EXECUTE FUNCTION %[1]s.fail()`,
			} {
				if _, err := admin.Exec(t.Context(), fmt.Sprintf(text, schema, code)); err != nil {
					t.Fatal(err)
				}
			}
			d.Faults = func(stop context.Context) (n int) {
				<-stop.Done()
				if err := admin.QueryRow(t.Context(), fmt.Sprintf("SELECT last_value FROM %s.failures", schema)).Scan(&n); err != nil {
					t.Error(err)
				}
				return n
			}
			d.Run(t)
			sqldrill.NotifiesAtOnce(t, d.Direct, 30)
		})
	}
}

// While the server refuses connections, a client rarely tries to listen, and soon listens again
// afterwards.
func TestListenBacksOff(t *testing.T) {
	t.Parallel()
	const outage, most = 4 * time.Second, 60 // with sslmode=prefer, an attempt is two connections
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	s := newStoreOn(t, newPool(t, sharedServer(t).URL()))
	refused := pgstore.New(newPool(t, pgtest.URL(proxy.Addr())), pgstore.Schema(s.SchemaName()))
	proxy.Refuse(true)
	ctx, cancel := context.WithCancel(t.Context())
	connected, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- refused.Watch(ctx, "client", nil, func(e driver.Event) {
			if e.Kind == driver.EventConnected {
				connected <- struct{}{}
			}
		})
	}()
	<-time.After(outage)
	if n := proxy.Stats().Accepted; n < 5 || n > most {
		t.Errorf("%d connections in %v, want 5 to %d", n, outage, most)
	}
	proxy.Heal()
	select {
	case <-connected:
	case <-time.After(outage):
		t.Errorf("not connected %v after the outage", outage)
	}
	cancel()
	<-ended
}

// Another transaction locks the names in the other order.
func TestDeadlocks(t *testing.T) {
	t.Parallel()
	const short = "&deadlock_timeout=10"
	admin := newPool(t, sharedServer(t).URL()+short)
	d, schema := newDrill(t, admin, sharedServer(t).URL()+short)
	d.Names = []string{"a", "b"}
	inReverse := func() error {
		return pgx.BeginFunc(t.Context(), admin, func(tx pgx.Tx) error {
			for _, name := range []string{"b", "a"} {
				if _, err := tx.Exec(t.Context(), fmt.Sprintf("SELECT pg_sleep(0.02) FROM %s.names WHERE name = $1 FOR UPDATE", schema), name); err != nil {
					return err
				}
			}
			return nil
		})
	}
	d.Faults = sqldrill.Deadlocks(inReverse, func() int { return deadlocks(t, admin) })
	d.Run(t)
}

// deadlocks returns the number found by the server.
func deadlocks(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	err := pool.QueryRow(t.Context(), "SELECT sum(deadlocks) FROM pg_stat_database, pg_sleep(1.1)").Scan(&n) // sessions report each second
	if err != nil {
		t.Error(err)
	}
	return n
}

// Without notifications a waiter asks again.
func TestPoll(t *testing.T) {
	t.Parallel()
	admin := newPool(t, sharedServer(t).URL())
	d, _ := newDrill(t, admin, sharedServer(t).URL(), pgstore.Poll())
	d.Time = 2 * time.Second
	d.Faults = func(context.Context) int { return 1 } // none
	d.Run(t)
}

// A pooler in transaction mode gives each transaction another connection.
func TestPoolerIsKilled(t *testing.T) {
	t.Parallel()
	const connections = 8 // fewer than the clients have
	pooler, err := pgtest.StartBouncer(sharedServer(t), connections)
	if errors.Is(err, pgtest.ErrNoBouncer) && os.Getenv("DIBS_REQUIRE_POSTGRES") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pooler.Close(); err != nil {
			t.Error(err)
		}
	})
	url := pgtest.URL(pooler.Addr()) + "&default_query_exec_mode=cache_describe"
	d, schema := newDrill(t, newPool(t, sharedServer(t).URL()), url, pgstore.Poll())
	d.Faults = sqldrill.Again(time.Second, func() {
		pooler.Kill()
		if err := pooler.Restart(); err != nil {
			t.Error(err)
		}
	})
	d.Run(t)
	pool := newPool(t, url)
	wantGuarded(t, pgstore.New(pool, pgstore.Poll(), pgstore.Schema(schema)), pool)
}

// wantGuarded checks whether a guard on a pool connection keeps others out.
func wantGuarded(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool) {
	t.Helper()
	l, err := dibs.New(s).Mutex("guarded").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tx := beginGuarded(l.Context(), t, s, pool)
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
	if _, err := dibs.New(s).Mutex("guarded").TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
		t.Errorf("%v while a transaction is guarded", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	next, err := dibs.New(s).Mutex("guarded").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Unlock(); err != nil {
		t.Error(err)
	}
}

func TestNothingRunsAfterClose(t *testing.T) { // not parallel: it counts goroutines
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	schema := fmt.Sprintf("closed_%d", schemas.Add(1))
	newStoreOn(t, newPool(t, sharedServer(t).URL()), pgstore.Schema(schema))
	sqldrill.NothingRuns(t, proxy, func() (driver.Store, func()) {
		pool, err := pgxpool.New(t.Context(), pgtest.URL(proxy.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		return pgstore.New(pool, pgstore.Schema(schema)), pool.Close
	})
}
