package pgstore_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/dibslock/dibs/internal/pgtest"
	"github.com/dibslock/dibs/internal/sqldrill"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The arguments with which the test binary is a holder of an account.
var (
	holderURL    = flag.String("holder-url", "", "run a holder of an account with this database")
	holderSchema = flag.String("holder-schema", "", "schema of the locks and accounts")
	holderOf     = flag.String("holder-of", "", "the account")
	holderGuards = flag.Bool("holder-guards", false, "guard the transactions")
)

func textsOf(schema string) sqldrill.Texts {
	return sqldrill.Texts{
		Create: []string{
			fmt.Sprintf("CREATE TABLE %s.accounts (name text PRIMARY KEY, value bigint NOT NULL DEFAULT 0)", schema),
			fmt.Sprintf("CREATE TABLE %s.changes (id bigserial, account text, before bigint, fence bigint)", schema),
		},
		Add:     fmt.Sprintf("INSERT INTO %s.accounts VALUES ($1)", schema),
		Read:    fmt.Sprintf("SELECT value FROM %s.accounts WHERE name = $1", schema),
		Write:   fmt.Sprintf("UPDATE %s.accounts SET value = $1 WHERE name = $2", schema),
		Log:     fmt.Sprintf("INSERT INTO %s.changes (account, before, fence) VALUES ($1, $2, $3)", schema),
		Changes: fmt.Sprintf("SELECT before, fence FROM %s.changes WHERE account = $1 ORDER BY id", schema),
	}
}

func hold() error {
	db, err := sql.Open("pgx", *holderURL)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(context.Background(), *holderURL)
	if err != nil {
		return err
	}
	s := pgstore.New(pool, pgstore.Schema(*holderSchema))
	bank := &sqldrill.Bank{DB: db, Store: s, Texts: textsOf(*holderSchema)}
	if *holderGuards {
		bank.Guard = s.GuardSQL
	}
	return bank.Hold(*holderOf, os.Stdin, os.Stdout)
}

func TestStoppedHolders(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	schema := fmt.Sprintf("stops_%d", schemas.Add(1))
	newStoreOn(t, newPool(t, server.URL()), pgstore.Schema(schema))
	admin, err := sql.Open("pgx", server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	number := 60
	if os.Getenv("DIBS_LONG") == "1" {
		number = 1000
	}
	sqldrill.StoppedHolders(t, number, server.Addr(), admin, textsOf(schema), func(addr, account string, guarded bool) *exec.Cmd {
		return exec.Command(os.Args[0], "-holder-url="+pgtest.URL(addr), "-holder-schema="+schema, "-holder-of="+account, fmt.Sprint("-holder-guards=", guarded))
	})
}
