package mysqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/mysqltest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/mysqlstore"
)

// newDrill returns a drill with new tables. Its clients have their own connections.
func newDrill(t *testing.T, direct *sql.DB, open func() *sql.DB) (d sqldrill.Drill, prefix string) {
	t.Helper()
	prefix = fmt.Sprintf("drill_%d_", prefixes.Add(1))
	s := mysqlstore.New(direct, mysqlstore.TablePrefix(prefix))
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return sqldrill.Drill{
		Names:  []string{"n"},
		Open:   func() driver.Store { return mysqlstore.New(open(), mysqlstore.TablePrefix(prefix)) },
		Direct: s,
		Time:   4 * time.Second,
	}, prefix
}

// ownServer starts a server for tests to stop.
func ownServer(t *testing.T, args ...string) *mysqltest.Server {
	t.Helper()
	sharedServer(t) // skips the test without a server
	server, err := mysqltest.Start(args...)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, server)
	return server
}

func closeAfter(t *testing.T, server *mysqltest.Server) {
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
	open := func() *sql.DB { return newDB(t, server.DSN("mysql")) }
	d, _ := newDrill(t, open(), open)
	d.Time = 8 * time.Second
	d.Faults = sqldrill.Again(time.Second, func() {
		server.Kill()
		if err := server.Restart(); err != nil {
			t.Error(err)
		}
	})
	d.RunHeld(t)
}

// Each connection may be ended at any time.
func TestConnectionsAreKilled(t *testing.T) {
	t.Parallel()
	const user = "killed"
	admin := newDB(t, sharedServer(t).DSN("mysql"))
	mustExec(t, admin, "CREATE OR REPLACE USER killed@'127.0.0.1'", "GRANT ALL ON *.* TO killed@'127.0.0.1'")
	dsn := user + "@tcp(" + sharedServer(t).Addr() + ")/mysql?interpolateParams=true"
	d, _ := newDrill(t, admin, func() *sql.DB { return newDB(t, dsn) })
	d.Faults = func(stop context.Context) (killed int) {
		sqldrill.Again(50*time.Millisecond, func() {
			for _, id := range connectionsOf(t, admin, user) {
				if _, err := admin.ExecContext(t.Context(), "KILL CONNECTION ?", id); err == nil { // otherwise it ended before
					killed++
				}
			}
		})(stop)
		return killed
	}
	d.Run(t)
}

// The network may lose, delay and cut.
func TestNetworkFails(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	d, _ := newDrill(t, newDB(t, sharedServer(t).DSN("mysql")), func() *sql.DB { return newDB(t, mysqltest.DSN(proxy.Addr(), "mysql")) })
	d.Time = 8 * time.Second
	d.Faults = sqldrill.Network(proxy)
	d.Run(t)
}

// While the server refuses connections, a client with a waiter fetches rarely, and soon fetches
// again afterwards.
func TestFetchBacksOff(t *testing.T) {
	t.Parallel()
	const outage, most = 4 * time.Second, 40
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	prefix := fmt.Sprintf("refused_%d_", prefixes.Add(1))
	if err := mysqlstore.New(newDB(t, sharedServer(t).DSN("mysql")), mysqlstore.TablePrefix(prefix)).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := mysqlstore.New(newDB(t, mysqltest.DSN(proxy.Addr(), "mysql")), mysqlstore.TablePrefix(prefix))
	events := make(chan driver.EventKind, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, "client", nil, func(e driver.Event) { events <- e.Kind })
	}()
	want := func(kind driver.EventKind) {
		t.Helper()
		select {
		case have := <-events:
			if have != kind {
				t.Errorf("event %v, want %v", have, kind)
			}
		case <-time.After(2 * outage):
			t.Errorf("no event %v", kind)
		}
	}
	want(driver.EventConnected)
	for _, token := range []string{"holds", "waits"} {
		request := driver.AcquireRequest{Name: "n", Token: token, Weight: 1, Limit: 1, TTL: time.Minute, Client: "client", Queue: true, Until: time.Now().Add(outage)}
		if _, err := s.Acquire(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	proxy.Refuse(true)
	proxy.Reset()
	before := proxy.Stats().Accepted
	<-time.After(outage)
	if n := proxy.Stats().Accepted - before; n < 5 || n > most {
		t.Errorf("%d connections in %v, want 5 to %d", n, outage, most)
	}
	want(driver.EventDisconnected)
	proxy.Heal()
	want(driver.EventConnected)
	cancel()
	<-ended
}

// The server can roll back any transaction, because it conflicts with another.
func TestTransactionsAreRolledBack(t *testing.T) {
	t.Parallel()
	const database = "rolled_back" // the other tests use a system database, which cannot have triggers
	mustExec(t, newDB(t, sharedServer(t).DSN("mysql")), "CREATE DATABASE IF NOT EXISTS "+database)
	open := func() *sql.DB { return newDB(t, sharedServer(t).DSN(database)) }
	admin := open()
	d, prefix := newDrill(t, admin, open)
	const deadlock = "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'injected'"
	mustExec(t, admin, "CREATE SEQUENCE "+prefix+"failures",
		fmt.Sprintf("CREATE TRIGGER %[1]sfail BEFORE UPDATE ON %[1]snames FOR EACH ROW IF rand() < 0.05 THEN DO nextval(%[1]sfailures); %[2]s; END IF", prefix, deadlock))
	d.Faults = func(stop context.Context) (n int) {
		<-stop.Done()
		if err := admin.QueryRowContext(t.Context(), "SELECT nextval("+prefix+"failures) - 1").Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	d.Run(t)
	sqldrill.NotifiesAtOnce(t, d.Direct, 30)
}

// Another transaction locks the names in the other order.
func TestDeadlocks(t *testing.T) {
	t.Parallel()
	open := func() *sql.DB { return newDB(t, sharedServer(t).DSN("mysql")) }
	admin := open()
	d, prefix := newDrill(t, admin, open)
	d.Names = []string{"a", "b"}
	inReverse := func() error {
		tx, err := admin.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		for _, name := range []string{"b", "a"} {
			if _, err := tx.ExecContext(t.Context(), "DO (SELECT sleep(0.02) FROM "+prefix+"names WHERE name = ? FOR UPDATE)", name); err != nil {
				return err
			}
		}
		return nil
	}
	d.Faults = sqldrill.Deadlocks(inReverse, func() int { return deadlocks(t, admin) })
	d.Run(t)
}

// deadlocks returns the number found by the server.
func deadlocks(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	err := db.QueryRowContext(t.Context(), "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'innodb_deadlocks'").Scan(&n)
	if err != nil {
		t.Error(err)
	}
	return n
}

// Many processes create the tables at once.
func TestMigrate(t *testing.T) {
	t.Parallel()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if err := mysqlstore.New(db, mysqlstore.TablePrefix("at once `$1` ")).Migrate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestNothingRunsAfterClose(t *testing.T) { // not parallel: it counts goroutines
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	prefix := fmt.Sprintf("closed_%d_", prefixes.Add(1))
	if err := mysqlstore.New(newDB(t, sharedServer(t).DSN("mysql")), mysqlstore.TablePrefix(prefix)).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	sqldrill.NothingRuns(t, proxy, func() (driver.Store, func()) {
		db := newDB(t, mysqltest.DSN(proxy.Addr(), "mysql"))
		return mysqlstore.New(db, mysqlstore.TablePrefix(prefix)), func() { _ = db.Close() }
	})
}
