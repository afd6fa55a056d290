package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/dibslock/dibs/internal/test/mysqltest"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/mysqlstore"
	"github.com/go-sql-driver/mysql"
)

// The arguments with which the test binary holds an account.
var (
	holderDSN    = flag.String("holder-dsn", "", "run a holder of an account with this database")
	holderOf     = flag.String("holder-of", "", "the account")
	holderWay    = flag.String("holder-way", "", "how the transactions are tied to the leases")
	holderGuards = flag.Bool("holder-guards", false, "guard the transactions")
)

// stopsFor is how long each way runs with guards. Without it, the long form takes about a minute for each.
var stopsFor = flag.Duration("stops-for", 0, "run each way of TestStoppedHolders for this long, with DIBS_LONG=1")

func textsOf(prefix string) sqldrill.Texts {
	return sqldrill.Texts{
		Create: []string{
			"CREATE TABLE " + prefix + "accounts (name VARCHAR(100) PRIMARY KEY, value BIGINT NOT NULL DEFAULT 0)",
			"CREATE TABLE " + prefix + "changes (id BIGINT AUTO_INCREMENT PRIMARY KEY, account VARCHAR(100), was BIGINT, fence BIGINT)",
		},
		Add:     "INSERT INTO " + prefix + "accounts (name) VALUES (?)",
		Read:    "SELECT value FROM " + prefix + "accounts WHERE name = ?",
		Write:   "UPDATE " + prefix + "accounts SET value = ? WHERE name = ?",
		Log:     "INSERT INTO " + prefix + "changes (account, was, fence) VALUES (?, ?, ?)",
		Changes: "SELECT was, fence FROM " + prefix + "changes WHERE account = ? ORDER BY id",
	}
}

func hold() error {
	db, err := sql.Open("mysql", *holderDSN)
	if err != nil {
		return err
	}
	s := mysqlstore.New(db)
	bank := &sqldrill.Bank{Store: s, Texts: textsOf(""), Way: sqldrill.WayOf(*holderWay), Guarded: *holderGuards}
	bank.Begin = func(ctx context.Context, level sql.IsolationLevel) (sqldrill.Transaction, error) {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
		return sqldrill.SQLTransaction{Tx: tx, Guarding: s.Guard, Releasing: s.ReleaseIn}, err
	}
	return bank.Hold(*holderOf, os.Stdin, os.Stdout)
}

// Processes that stop, crash or lose their connections in a transaction should commit nothing
// stale.
func TestStoppedHolders(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	name := fmt.Sprintf("stops_%d", prefixes.Add(1)) // a separate database: its connections are the holders'
	mustExec(t, newDB(t, server.DSN("mysql")), "CREATE DATABASE "+name)
	admin := newDB(t, server.DSN(name))
	if err := mysqlstore.New(admin).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustExec(t, admin, textsOf("").Create...)
	killer := newDB(t, server.DSN("mysql"))
	stops := sqldrill.Stops{
		Number: 40, Server: server.Addr(), Admin: admin, Texts: textsOf(""),
		Kill: func() error { return killOne(t.Context(), killer, name) },
		Start: func(addr, account string, way sqldrill.Way, guarded bool) *exec.Cmd {
			return exec.Command(os.Args[0], "-holder-dsn="+mysqltest.DSN(addr, name),
				"-holder-of="+account, "-holder-way="+way.Name, fmt.Sprint("-holder-guards=", guarded))
		},
	}
	ways := []sqldrill.Way{sqldrill.WayOf("read committed"), sqldrill.WayOf("serializable savepoint"), sqldrill.WayOf("release in")}
	if os.Getenv("DIBS_LONG") == "1" {
		stops.Number, stops.For = 1000, *stopsFor
		ways = slices.DeleteFunc(slices.Clone(sqldrill.Ways), func(w sqldrill.Way) bool { return w.Native })
	}
	for _, way := range ways {
		t.Run(way.Name, func(t *testing.T) { stops.Run(t, way) })
	}
}

// killOne ends a connection to a database, if there is any.
func killOne(ctx context.Context, db *sql.DB, database string) error {
	const some = "SELECT id FROM information_schema.processlist WHERE db = ? ORDER BY RAND() LIMIT 1"
	var id int64
	err := db.QueryRowContext(ctx, some, database).Scan(&id)
	if err != nil {
		return err
	}
	const ended = 1094
	_, err = db.ExecContext(ctx, fmt.Sprint("KILL ", id))
	if server := (*mysql.MySQLError)(nil); errors.As(err, &server) && server.Number == ended {
		return nil
	}
	return err
}
