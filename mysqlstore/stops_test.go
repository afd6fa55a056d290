package mysqlstore_test

import (
	"database/sql"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/dibslock/dibs/internal/mysqltest"
	"github.com/dibslock/dibs/internal/sqldrill"
	"github.com/dibslock/dibs/mysqlstore"
)

// The arguments with which the test binary is a holder of an account.
var (
	holderDSN    = flag.String("holder-dsn", "", "run a holder of an account with this database")
	holderPrefix = flag.String("holder-prefix", "", "prefix of the tables of the locks and accounts")
	holderOf     = flag.String("holder-of", "", "the account")
	holderGuards = flag.Bool("holder-guards", false, "guard the transactions")
)

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
	s := mysqlstore.New(db, mysqlstore.Prefix(*holderPrefix))
	bank := &sqldrill.Bank{DB: db, Store: s, Texts: textsOf(*holderPrefix)}
	if *holderGuards {
		bank.Guard = s.Guard
	}
	return bank.Hold(*holderOf, os.Stdin, os.Stdout)
}

func TestStoppedHolders(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	admin := newDB(t, server.DSN("mysql"))
	prefix := fmt.Sprintf("stops_%d_", prefixes.Add(1))
	if err := mysqlstore.New(admin, mysqlstore.Prefix(prefix)).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	number := 60
	if os.Getenv("DIBS_LONG") == "1" {
		number = 1000
	}
	sqldrill.StoppedHolders(t, number, server.Addr(), admin, textsOf(prefix), func(addr, account string, guarded bool) *exec.Cmd {
		return exec.Command(os.Args[0], "-holder-dsn="+mysqltest.DSN(addr, "mysql"), "-holder-prefix="+prefix, "-holder-of="+account, fmt.Sprint("-holder-guards=", guarded))
	})
}
