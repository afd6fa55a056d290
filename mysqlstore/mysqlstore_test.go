package mysqlstore_test

import (
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/mysqltest"
	"github.com/dibslock/dibs/mysqlstore"
	"github.com/dibslock/dibs/storetest"
	"github.com/go-sql-driver/mysql"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) driver.Store { return newStore(t) })
	storetest.RunTickets(t, func(t *testing.T) driver.Store { return newStore(t) })
}

func TestClocks(t *testing.T) {
	dsn := sharedServer(t).DSN("mysql")
	prefix := mysqlstore.TablePrefix("dibs clocks ")
	if err := mysqlstore.New(newDB(t, dsn), prefix).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	storetest.RunClocks(t, func(t *testing.T) driver.Store {
		db := newDB(t, dsn)
		db.SetMaxOpenConns(0) // none is kept, which would outlive a bubble
		return mysqlstore.New(db, prefix)
	})
}

var (
	serverOnce sync.Once
	server     *mysqltest.Server
	serverErr  error
	prefixes   atomic.Int64
)

// TestMain stops the shared server. With a holder's arguments it runs the holder.
func TestMain(m *testing.M) {
	flag.Parse()
	if *holderDSN != "" {
		if err := hold(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// The server needs processors: more tests at a time would take as long in all, and each longer.
	_ = flag.Set("test.parallel", "4")
	code := m.Run()
	if server != nil {
		_ = server.Close()
	}
	os.Exit(code)
}

// sharedServer returns a server shared by all tests, each with its own prefix.
func sharedServer(t testing.TB) *mysqltest.Server {
	t.Helper()
	serverOnce.Do(func() {
		server, serverErr = mysqltest.Start()
	})
	if errors.Is(serverErr, mysqltest.ErrNoServer) && os.Getenv("DIBS_REQUIRE_MARIADB") == "" {
		t.Skip(serverErr)
	}
	if serverErr != nil {
		t.Fatal(serverErr)
	}
	return server
}

// newDB returns a database, which connects when it is first used.
func newDB(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.Logger = &mysql.NopLogger{} // the tests cut connections
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(30)
	db.SetMaxIdleConns(30)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// newStore returns a store with a new prefix.
func newStore(t testing.TB) *mysqlstore.Store {
	t.Helper()
	return newStoreOn(t, newDB(t, sharedServer(t).DSN("mysql")))
}

func newStoreOn(t testing.TB, db *sql.DB) *mysqlstore.Store {
	t.Helper()
	s := mysqlstore.New(db, mysqlstore.TablePrefix(fmt.Sprintf("dibs %d ", prefixes.Add(1))))
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}
