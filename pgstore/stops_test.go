package pgstore_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The arguments with which the test binary holds an account.
var (
	holderURL    = flag.String("holder-url", "", "run a holder of an account with this database")
	holderSchema = flag.String("holder-schema", "", "schema of the locks and accounts")
	holderOf     = flag.String("holder-of", "", "the account")
	holderWay    = flag.String("holder-way", "", "how the transactions are tied to the leases")
	holderGuards = flag.Bool("holder-guards", false, "guard the transactions")
)

// stopsFor is how long each way runs with guards. Without it, the long form takes about a minute for each.
var stopsFor = flag.Duration("stops-for", 0, "run each way of TestStoppedHolders for this long, with DIBS_LONG=1")

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
	bank := &sqldrill.Bank{Store: s, Texts: textsOf(*holderSchema), Way: sqldrill.WayOf(*holderWay), Guarded: *holderGuards}
	bank.Begin = func(ctx context.Context, level sql.IsolationLevel) (sqldrill.Transaction, error) {
		if bank.Way.Native {
			return beginNative(ctx, s, pool, level)
		}
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
		return sqldrill.SQLTransaction{Tx: tx, Guarding: s.Guard, Releasing: s.ReleaseIn}, err
	}
	return bank.Hold(*holderOf, os.Stdin, os.Stdout)
}

func beginNative(ctx context.Context, s *pgstore.Store, pool *pgxpool.Pool, level sql.IsolationLevel) (sqldrill.Transaction, error) {
	var options pgx.TxOptions
	if level != sql.LevelDefault {
		options.IsoLevel = pgx.TxIsoLevel(strings.ToLower(level.String()))
	}
	tx, err := pool.BeginTx(ctx, options)
	return nativeTx{tx, s}, err
}

// A nativeTx is a pgx transaction.
type nativeTx struct {
	pgx.Tx
	s *pgstore.Store
}

func (t nativeTx) Read(ctx context.Context, text, account string) (value int64, err error) {
	err = t.QueryRow(ctx, text, account).Scan(&value)
	return value, err
}

func (t nativeTx) Execute(ctx context.Context, text string, args ...any) error {
	_, err := t.Exec(ctx, text, args...)
	return err
}

func (t nativeTx) Guard(ctx context.Context) error     { return t.s.GuardPgx(ctx, t.Tx) }
func (t nativeTx) ReleaseIn(ctx context.Context) error { return t.s.ReleaseInPgx(ctx, t.Tx) }

// Processes that stop, crash or lose their connections in a transaction should commit nothing
// stale.
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
	for _, text := range textsOf(schema).Create {
		if _, err := admin.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	const kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 ORDER BY random() LIMIT 1"
	stops := sqldrill.Stops{
		Number: 40, Server: server.Addr(), Admin: admin, Texts: textsOf(schema),
		Kill: func() error {
			_, err := admin.ExecContext(t.Context(), kill, schema)
			return err
		},
		Start: func(addr, account string, way sqldrill.Way, guarded bool) *exec.Cmd {
			return exec.Command(os.Args[0], "-holder-url="+pgtest.URL(addr)+"&application_name="+schema, "-holder-schema="+schema,
				"-holder-of="+account, "-holder-way="+way.Name, fmt.Sprint("-holder-guards=", guarded))
		},
	}
	ways := []sqldrill.Way{sqldrill.WayOf("read committed"), sqldrill.WayOf("native savepoint")}
	if os.Getenv("DIBS_LONG") == "1" {
		stops.Number, stops.For, ways = 1000, *stopsFor, sqldrill.Ways
	}
	for _, way := range ways {
		t.Run(way.Name, func(t *testing.T) { stops.Run(t, way) })
	}
}
