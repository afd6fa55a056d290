package pgstore_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/dibslock/dibs/pgstore"
	"github.com/dibslock/dibs/storetest"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) driver.Store { return newStore(t) })
	storetest.RunTickets(t, func(t *testing.T) driver.Store { return newStore(t) })
}

func TestClocks(t *testing.T) {
	url, schema := sharedServer(t).URL(), pgstore.Schema("test clocks")
	if err := pgstore.New(newPool(t, url), schema).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	storetest.RunClocks(t, func(t *testing.T) driver.Store { return pgstore.New(newPool(t, url), schema) })
}

var (
	serverOnce sync.Once
	server     *pgtest.Server
	serverErr  error
	schemas    atomic.Int64
)

// TestMain stops the shared server. With a holder's arguments it runs the holder.
func TestMain(m *testing.M) {
	flag.Parse()
	if *holderURL != "" {
		if err := hold(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// The server needs processors: more tests at a time would take as long in all, and each longer.
	_ = flag.Set("test.parallel", "4")
	if !pgtest.Installed() && os.Getenv("DIBS_REQUIRE_POSTGRES") == "" && flag.Lookup("test.skip").Value.String() == "" {
		_ = flag.Set("test.skip", "^ExampleStore_GuardPgx$") // an example cannot skip itself
	}
	code := m.Run()
	if server != nil {
		_ = server.Close()
	}
	os.Exit(code)
}

// sharedServer returns a server shared by all tests, each with its own schema.
func sharedServer(t testing.TB) *pgtest.Server {
	t.Helper()
	startServer()
	if errors.Is(serverErr, pgtest.ErrNoServer) && os.Getenv("DIBS_REQUIRE_POSTGRES") == "" {
		t.Skip(serverErr)
	}
	if serverErr != nil {
		t.Fatal(serverErr)
	}
	return server
}

func startServer() {
	serverOnce.Do(func() {
		server, serverErr = pgtest.Start()
	})
}

// newStore returns a store in a new schema.
func newStore(t testing.TB, options ...pgstore.Option) *pgstore.Store {
	t.Helper()
	return storeAt(t, sharedServer(t).URL(), options...)
}

func storeAt(t testing.TB, url string, options ...pgstore.Option) *pgstore.Store {
	t.Helper()
	return newStoreOn(t, newPool(t, url), options...)
}

// newPool returns a pool, which connects when it is first used.
func newPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func newStoreOn(t testing.TB, pool *pgxpool.Pool, options ...pgstore.Option) *pgstore.Store {
	t.Helper()
	s := pgstore.New(pool, append([]pgstore.Option{pgstore.Schema(fmt.Sprintf("test %d", schemas.Add(1)))}, options...)...)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}
