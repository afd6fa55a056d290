package doctor_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/checkuptest"
	"github.com/dibslock/dibs/internal/test/mysqltest"
	"github.com/dibslock/dibs/mysqlstore"
	"github.com/go-sql-driver/mysql"
)

// suitable contains options for a server suitable for locks.
var suitable = []string{"--innodb-flush-log-at-trx-commit=1", "--idle-transaction-timeout=60"}

var (
	serverOnce sync.Once
	server     *mysqltest.Server
	serverErr  error
	databases  atomic.Int64
)

// TestMain stops the shared server.
func TestMain(m *testing.M) {
	code := m.Run()
	if server != nil {
		_ = server.Close()
	}
	os.Exit(code)
}

func sharedServer(t *testing.T) *mysqltest.Server {
	t.Helper()
	serverOnce.Do(func() { server, serverErr = mysqltest.Start(suitable...) })
	if errors.Is(serverErr, mysqltest.ErrNoServer) && os.Getenv("DIBS_REQUIRE_MARIADB") == "" {
		t.Skip(serverErr)
	}
	if serverErr != nil {
		t.Fatal(serverErr)
	}
	return server
}

// start starts a server suitable for locks, unless args say otherwise.
func start(t *testing.T, args ...string) *mysqltest.Server {
	t.Helper()
	sharedServer(t) // skips the test without a server
	s, err := mysqltest.Start(append(slices.Clone(suitable), args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// newDatabase creates a database with the tables, and returns its name.
func newDatabase(t *testing.T, s *mysqltest.Server) string {
	t.Helper()
	name := fmt.Sprintf("doctor_%d", databases.Add(1))
	execute(t, open(t, s.DSN("mysql")), "CREATE DATABASE "+name)
	if err := mysqlstore.New(open(t, s.DSN(name))).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return name
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// examine returns the findings for a database with the tables.
func examine(t *testing.T, db *sql.DB) checkup.Findings {
	t.Helper()
	s := mysqlstore.New(db)
	found, err := checkup.Examine(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	checkuptest.WantSorted(t, found)
	return found
}

func TestNothingFound(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	db := open(t, s.DSN(newDatabase(t, s)))
	if found := examine(t, db); len(found) > 0 {
		t.Errorf("found:\n%v", found)
	}
	names, err := mysqlstore.New(db).List(t.Context(), "*")
	if err != nil || len(names) > 0 {
		t.Errorf("the smoke test has left %q, %v", names, err)
	}
}

func TestServerSettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		setting, value string
		severity       checkup.Severity
		subject, says  string
	}{
		{"innodb_flush_log_at_trx_commit", "0", checkup.Critical, "flush", "a crash of the server"},
		{"innodb_flush_log_at_trx_commit", "2", checkup.Warning, "flush", "the machine stops"},
		{"binlog_format", "STATEMENT", checkup.Critical, "binlog", "MIXED"},
		{"sync_binlog", "0", checkup.Warning, "sync-binlog", "sync_binlog is 0"},
		{"idle_transaction_timeout", "0", checkup.Warning, "idle-in-transaction", "guarded"},
		{"read_only", "ON", checkup.Critical, "role", "connect to the primary"},
		{"tx_read_only", "ON", checkup.Critical, "role", "by default"},
		{"max_connections", "40", checkup.Warning, "connections", "of 40 connections"},
	} {
		t.Run(c.setting+" "+c.value, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--log-bin", "--server-id=1", "--sync-binlog=1", "--binlog-format=MIXED")
			database := newDatabase(t, s)
			admin := open(t, s.DSN("mysql"))
			execute(t, admin, "SET GLOBAL "+c.setting+" = "+c.value)
			if c.setting == "max_connections" {
				holdConnections(t, admin, 35)
			}
			checkuptest.Want(t, examine(t, open(t, s.DSN(database))), c.severity, c.subject, c.says)
		})
	}
}

// The doctor names a session setting with which a store refuses to work.
func TestSessionSettings(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	database := newDatabase(t, s)
	for name, value := range map[string]string{"autocommit": "0", "sql_safe_updates": "1", "completion_type": "1", "sql_select_limit": "1"} {
		checkuptest.Want(t, examine(t, open(t, s.DSN(database)+"&"+name+"="+value)), checkup.Critical, "session", name+" is ")
	}
}

// holdConnections opens connections until the server reaches this number.
func holdConnections(t *testing.T, db *sql.DB, number int) {
	t.Helper()
	for used := 0; used < number; {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		var name string
		if err := conn.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Threads_connected'").Scan(&name, &used); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReplica(t *testing.T) {
	t.Parallel()
	primary := start(t, "--log-bin", "--server-id=1", "--sync-binlog=1")
	database := newDatabase(t, primary)
	sharedServer(t)
	replica, err := primary.Replica(append(slices.Clone(suitable), "--server-id=2", "--read-only", "--rpl-semi-sync-slave-enabled")...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = replica.Close() })
	db := open(t, primary.DSN(database))
	for connected := 0; connected == 0; time.Sleep(10 * time.Millisecond) { // it connects soon
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'").Scan(&connected); err != nil {
			t.Fatal(err)
		}
	}
	checkuptest.WantOnly(t, examine(t, db), checkup.Warning, "failover", "replicas: 1")
	execute(t, db, "SET GLOBAL rpl_semi_sync_master_enabled = ON")
	checkuptest.WantOnly(t, examine(t, db), checkup.Warning, "failover", "AFTER_SYNC")
	execute(t, db, "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC")
	if found := examine(t, db); len(found) > 0 {
		t.Errorf("semi-synchronous: found\n%v", found)
	}
}

// The server shows its replicas only to users with the right PROCESS.
func TestReplicasThatAreNotShown(t *testing.T) {
	t.Parallel()
	primary := start(t, "--log-bin", "--server-id=1", "--sync-binlog=1", "--rpl-semi-sync-master-timeout=1")
	database := newDatabase(t, primary)
	admin := open(t, primary.DSN("mysql"))
	execute(t, admin, "CREATE USER app@'127.0.0.1'")
	execute(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON "+database+".* TO app@'127.0.0.1'")
	asApp := func() *sql.DB { return open(t, strings.Replace(primary.DSN(database), "root@", "app@", 1)) }
	checkuptest.WantOnly(t, examine(t, asApp()), checkup.Unchecked, "failover", "GRANT PROCESS ON *.* TO 'app'@'127.0.0.1'")
	execute(t, admin, "GRANT PROCESS ON *.* TO app@'127.0.0.1'")
	if found := examine(t, asApp()); len(found) > 0 {
		t.Errorf("with PROCESS: found\n%v", found)
	}
	execute(t, admin, "REVOKE PROCESS ON *.* FROM app@'127.0.0.1'")
	execute(t, admin, "CREATE ROLE monitor")
	execute(t, admin, "GRANT PROCESS ON *.* TO monitor")
	execute(t, admin, "GRANT monitor TO app@'127.0.0.1'")
	execute(t, admin, "SET DEFAULT ROLE monitor FOR app@'127.0.0.1'")
	if found := examine(t, asApp()); len(found) > 0 {
		t.Errorf("with a role: found\n%v", found)
	}
	execute(t, admin, "SET DEFAULT ROLE NONE FOR app@'127.0.0.1'")
	execute(t, admin, "SET GLOBAL rpl_semi_sync_master_enabled = ON")
	checkuptest.Want(t, examine(t, asApp()), checkup.Unchecked, "failover", "PROCESS")
	execute(t, admin, "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC")
	if found := examine(t, asApp()); len(found) > 0 {
		t.Errorf("semi-synchronous: found\n%v", found)
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, statement, subject, says string }{
		{"a table", "DROP TABLE dibs_waiters", "schema", "lacks a table: dibs_waiters"},
		{"a procedure", "DROP PROCEDURE dibs_head_v1", "schema", "lacks a procedure: dibs_head_v1"},
		{"another text", "CREATE OR REPLACE PROCEDURE dibs_notify_v1(IN its_client VARBINARY(512), IN its_message VARBINARY(2048)) BEGIN DO 1; END",
			"schema", "not of this release of dibs: dibs_notify_v1"},
		{"engine", "ALTER TABLE dibs_messages ENGINE = MyISAM", "engine", "dibs_messages (MyISAM)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := sharedServer(t)
			db := open(t, s.DSN(newDatabase(t, s)))
			execute(t, db, c.statement)
			checkuptest.Want(t, examine(t, db), checkup.Critical, c.subject, c.says)
		})
	}
}

// Comments do not count: the server's client removes them from its statements.
func TestCommentsAreNotCompared(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	name := fmt.Sprintf("doctor_%d", databases.Add(1))
	statements, err := mysqlstore.SQL("dibs_", 0, mysqlstore.Version)
	if err != nil {
		t.Fatal(err)
	}
	statements = append([]string{"CREATE DATABASE " + name, "USE " + name}, statements...)
	if err := s.Execute("DELIMITER $$\n" + strings.Join(statements, "$$\n") + "$$\n"); err != nil {
		t.Fatal(err)
	}
	db := open(t, s.DSN(name))
	var comments int
	const query = "SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = DATABASE() AND routine_definition LIKE '%-- %'"
	if err := db.QueryRowContext(t.Context(), query).Scan(&comments); err != nil || comments > 0 {
		t.Fatalf("%d procedures with comments, %v", comments, err)
	}
	if found := examine(t, db); len(found) > 0 {
		t.Errorf("found:\n%v", found)
	}
}

func TestRights(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	admin := open(t, s.DSN("mysql"))
	for _, c := range []struct{ name, rights, says string }{
		{"all", "SELECT, INSERT, UPDATE, DELETE, EXECUTE", ""},
		{"no delete", "SELECT, INSERT, UPDATE, EXECUTE", "DELETE command denied"},
		{"no execute", "SELECT, INSERT, UPDATE, DELETE", "GRANT EXECUTE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			database := newDatabase(t, s)
			execute(t, admin, "CREATE OR REPLACE USER "+database+"@'127.0.0.1'")
			execute(t, admin, fmt.Sprintf("GRANT %s ON %[2]s.* TO %[2]s@'127.0.0.1'", c.rights, database))
			found := examine(t, open(t, strings.Replace(s.DSN(database), "root@", database+"@", 1)))
			if c.says == "" && len(found) > 0 || c.says != "" && !strings.Contains(found.String(), c.says) {
				t.Errorf("want %q, found:\n%v", c.says, found)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	found, err := checkup.Examine(t.Context(), mysqlstore.New(open(t, mysqltest.DSN("127.0.0.1:1", "db"))))
	if !errors.Is(err, driver.ErrUnavailable) || found != nil {
		t.Errorf("%v, %v, want ErrUnavailable", found, err)
	}
}
