package pgstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
)

// A user should need only the rights in docs/databases.md.
func TestGrants(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	admin := newPool(t, server.URL())
	name := fmt.Sprintf("granted_%d", schemas.Add(1)) // the schema and the user: a test may run again
	newStoreOn(t, admin, pgstore.Schema(name))
	for _, statement := range []string{
		"CREATE ROLE %[1]s LOGIN",
		"GRANT USAGE ON SCHEMA %[1]s TO %[1]s",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[1]s TO %[1]s",
	} {
		if _, err := admin.Exec(t.Context(), fmt.Sprintf(statement, name)); err != nil {
			t.Fatal(err)
		}
	}
	pool := newPool(t, strings.Replace(pgtest.URL(server.Addr()), "postgres@", name+"@", 1))
	s := pgstore.New(pool, pgstore.Schema(name))
	locks := dibs.New(s, dibs.Timeout(10*time.Second))
	t.Cleanup(func() { _ = locks.Close() })
	for kind, lock := range map[string]dibs.Doer{
		"mutex": locks.Mutex("n"), "several": locks.All([]string{"a", "b"}), "reader": locks.RWMutex("r").Reader(), "permit": locks.Semaphore("s", 2).Permits(1),
	} {
		err := lock.Do(t.Context(), func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return s.GuardPgx(ctx, tx) })
		})
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := s.Inspect(t.Context(), "n"); err != nil {
		t.Error(err)
	}
}
