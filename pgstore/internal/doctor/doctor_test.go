package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/checkuptest"
	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5/pgxpool"
)

const fit = "&idle_in_transaction_session_timeout=60000" // for sessions

// startServer starts a server suitable for locks, unless args say otherwise.
func startServer(args ...string) (*pgtest.Server, error) {
	return pgtest.Start(append([]string{"fsync=on"}, args...)...)
}

var (
	serverOnce sync.Once
	server     *pgtest.Server
	serverErr  error
	schemas    atomic.Int64
)

// TestMain stops the shared server.
func TestMain(m *testing.M) {
	code := m.Run()
	if server != nil {
		_ = server.Close()
	}
	os.Exit(code)
}

func sharedServer(t *testing.T) *pgtest.Server {
	t.Helper()
	serverOnce.Do(func() { server, serverErr = startServer() })
	if errors.Is(serverErr, pgtest.ErrNoServer) && os.Getenv("DIBS_REQUIRE_POSTGRES") == "" {
		t.Skip(serverErr)
	}
	if serverErr != nil {
		t.Fatal(serverErr)
	}
	return server
}

func newPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// newSchema creates the tables in a new schema.
func newSchema(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	name := fmt.Sprintf("doctor_%d", schemas.Add(1))
	if err := pgstore.New(pool, pgstore.Schema(name)).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return name
}

func execute(t *testing.T, pool *pgxpool.Pool, statement string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func examine(t *testing.T, s *pgstore.Store) checkup.Findings {
	t.Helper()
	found, err := checkup.Examine(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	checkuptest.WantSorted(t, found)
	return found
}

func TestNothingFound(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL()+fit)
	s := pgstore.New(pool, pgstore.Schema(newSchema(t, pool)))
	if found := examine(t, s); len(found) > 0 {
		t.Errorf("found:\n%v", found)
	}
	names, err := s.List(t.Context(), "*")
	if err != nil || len(names) > 0 {
		t.Errorf("the smoke test has left %q, %v", names, err)
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	url := sharedServer(t).URL()
	schema := newSchema(t, newPool(t, url))
	for _, c := range []struct {
		setting  string
		severity checkup.Severity
		subject  string
		says     string
	}{
		{"idle_in_transaction_session_timeout=0", checkup.Warning, "idle-in-transaction", "ALTER ROLE postgres SET"},
		{"synchronous_commit=off", checkup.Note, "synchronous-commit", "SET LOCAL"},
		{"default_transaction_isolation=serializable", checkup.Note, "isolation", "serializable"},
		{"default_transaction_read_only=on", checkup.Critical, "role", "read-only by default"},
	} {
		t.Run(c.setting, func(t *testing.T) {
			t.Parallel()
			text := url + fit
			if strings.HasPrefix(c.setting, "idle") {
				text = url
			}
			found := examine(t, pgstore.New(newPool(t, text+"&"+c.setting), pgstore.Schema(schema)))
			checkuptest.WantOnly(t, found, c.severity, c.subject, c.says)
		})
	}
}

func TestServerSettings(t *testing.T) {
	t.Parallel()
	sharedServer(t) // skips the test without a server
	s, err := startServer("fsync=off", "full_page_writes=off", "autovacuum=off", "max_connections=14")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	pool := newPool(t, s.URL()+fit)
	store := pgstore.New(pool, pgstore.Schema(newSchema(t, pool)))
	for range 10 { // 11 are not reserved
		conn, err := newPool(t, s.URL()).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Release)
	}
	found := examine(t, store)
	checkuptest.Want(t, found, checkup.Critical, "fsync", "fsync = on")
	checkuptest.Want(t, found, checkup.Critical, "full-page-writes", "full_page_writes = on")
	checkuptest.Want(t, found, checkup.Warning, "autovacuum", "autovacuum = on")
	checkuptest.Want(t, found, checkup.Warning, "connections", "of 11 connections")
}

func TestStandby(t *testing.T) {
	t.Parallel()
	sharedServer(t)
	primary, err := startServer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = primary.Close() })
	pool := newPool(t, primary.URL()+fit)
	schema := pgstore.Schema(newSchema(t, pool))
	standby, err := primary.Standby("fsync=on")
	if errors.Is(err, pgtest.ErrNoStandby) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Close() })
	checkuptest.WantOnly(t, examine(t, pgstore.New(newPool(t, standby.URL()+fit), schema)), checkup.Critical, "role", "target_session_attrs=read-write")
	connected := func() (n int) {
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_replication").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for connected() == 0 {
		time.Sleep(10 * time.Millisecond) // it connects soon after its start
	}
	checkuptest.WantOnly(t, examine(t, pgstore.New(pool, schema)), checkup.Warning, "failover", "standbys: 1; synchronous_standby_names is empty")
	execute(t, pool, "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")
	execute(t, pool, "SELECT pg_reload_conf()")
	fresh := func(more string) *pgstore.Store { return pgstore.New(newPool(t, primary.URL()+fit+more), schema) }
	if found := examine(t, fresh("")); len(found) > 0 {
		t.Errorf("synchronous standby: found\n%v", found)
	}
	checkuptest.WantOnly(t, examine(t, fresh("&synchronous_commit=local")), checkup.Warning, "failover", "waits for no standby")
	standby.Stop()
	for connected() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	checkuptest.WantOnly(t, examine(t, fresh("")), checkup.Critical, "standbys", "no standby is connected")
}

func TestSchema(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL()+fit)
	for _, c := range []struct{ name, statement, says string }{
		{"no schema", "DROP SCHEMA %s CASCADE", "lacks a table: names, holders, waiters, removed, releases and 2 more"},
		{"a table", "DROP TABLE %s.waiters CASCADE", "lacks a table: waiters"},
		{"a function", "DROP FUNCTION %s.end_lease_v1 CASCADE", "lacks a function: end_lease_v1"},
		{"another text", "CREATE OR REPLACE FUNCTION %s.waiter_ttl_v1() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6000000::bigint'", "not of this release of dibs: waiter_ttl_v1"},
		{"no functions", `DO $$ DECLARE f oid; BEGIN
			FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = '%s'::regnamespace LOOP EXECUTE 'DROP FUNCTION ' || f::regprocedure || ' CASCADE'; END LOOP;
			END $$`, "lacks a function: acquire_one_v1, acquire_v1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			schema := newSchema(t, pool)
			execute(t, pool, fmt.Sprintf(c.statement, schema))
			found := examine(t, pgstore.New(pool, pgstore.Schema(schema)))
			checkuptest.WantOnly(t, found, checkup.Critical, "schema", c.says)
			checkuptest.Want(t, found, checkup.Critical, "schema", "dibs migrate")
		})
	}
}

// A tool may remove comments, or change spaces.
func TestCommentsAreNotCompared(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL()+fit)
	schema := fmt.Sprintf("doctor_%d", schemas.Add(1))
	statements, err := pgstore.SQL(schema, 0, pgstore.Version)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range statements {
		execute(t, pool, regexp.MustCompile(`(?m)[ \t]*-- .*$`).ReplaceAllString(text, ""))
	}
	if found := examine(t, pgstore.New(pool, pgstore.Schema(schema))); len(found) > 0 {
		t.Errorf("found:\n%v", found)
	}
}

func TestRights(t *testing.T) {
	t.Parallel()
	url := sharedServer(t).URL()
	admin := newPool(t, url)
	for _, c := range []struct{ name, revoke, says string }{
		{"all", "", ""},
		{"usage", "REVOKE USAGE ON SCHEMA %[1]s FROM %[1]s", "GRANT USAGE ON SCHEMA"},
		{"a table", "REVOKE DELETE, UPDATE ON %[1]s.holders FROM %[1]s", "GRANT UPDATE, DELETE ON"},
		{"functions", "REVOKE EXECUTE ON FUNCTION %[1]s.lock_v1 FROM PUBLIC", "lacks EXECUTE on functions: lock_v1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			name := newSchema(t, admin)
			for _, statement := range []string{
				"CREATE ROLE %[1]s LOGIN", "GRANT USAGE ON SCHEMA %[1]s TO %[1]s", "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[1]s TO %[1]s", c.revoke,
			} {
				if statement != "" {
					execute(t, admin, fmt.Sprintf(statement, name))
				}
			}
			found := examine(t, pgstore.New(newPool(t, strings.Replace(url, "postgres@", name+"@", 1)+fit), pgstore.Schema(name)))
			if c.says == "" && len(found) == 0 {
				return
			}
			checkuptest.WantOnly(t, found, checkup.Critical, "rights", c.says)
		})
	}
}

func TestPooler(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	schema := pgstore.Schema(newSchema(t, newPool(t, s.URL())))
	addr := startPooler(t, s)
	url := pgtest.URL(addr) + "&default_query_exec_mode=cache_describe"
	found := examine(t, pgstore.New(newPool(t, url), schema))
	checkuptest.Want(t, found, checkup.Warning, "pooler", "dibs_poll=true")
	for _, f := range examine(t, pgstore.New(newPool(t, url), schema, pgstore.Poll())) {
		if f.Subject != "idle-in-transaction" { // PgBouncer does not pass on this setting
			t.Errorf("with Poll:\n%v", f)
		}
	}
}

// startPooler starts PgBouncer in transaction mode, and returns its address.
func startPooler(t *testing.T, s *pgtest.Server) string {
	t.Helper()
	const connections = 20
	b, err := pgtest.StartBouncer(s, connections)
	if errors.Is(err, pgtest.ErrNoBouncer) && os.Getenv("DIBS_REQUIRE_POSTGRES") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b.Addr()
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	found, err := checkup.Examine(t.Context(), pgstore.New(newPool(t, "postgres://ann:secret@127.0.0.1:1/db")))
	if !errors.Is(err, driver.ErrUnavailable) || found != nil || err.Error() != "dibs: doctor: store unavailable: dial tcp 127.0.0.1:1: connect: connection refused" {
		t.Errorf("have %v, %v", found, err)
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL())
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if found, err := checkup.Examine(ctx, pgstore.New(pool)); err == nil || found != nil {
		t.Errorf("have %v, %v, want an error", found, err)
	}
}
