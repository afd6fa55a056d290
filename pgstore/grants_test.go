package pgstore_test

import (
	"context"
	"strings"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/pgtest"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
)

// A user needs the rights that docs/databases.md names.
func TestGrants(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	admin := newPool(t, server.URL())
	const schema = "granted"
	newStoreOn(t, admin, pgstore.Schema(schema))
	for _, statement := range []string{
		"CREATE ROLE app LOGIN",
		"GRANT USAGE ON SCHEMA granted TO app",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA granted TO app",
	} {
		if _, err := admin.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	pool := newPool(t, strings.Replace(pgtest.URL(server.Addr()), "postgres@", "app@", 1))
	s := pgstore.New(pool, pgstore.Schema(schema))
	locks := dibs.New(s)
	t.Cleanup(func() { _ = locks.Close() })
	for name, lock := range map[string]dibs.Doer{
		"mutex": locks.Mutex("n"), "several": locks.All("a", "b"), "reader": locks.RWMutex("r").Reading(), "permit": locks.Semaphore("s", 2),
	} {
		err := lock.Do(t.Context(), func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return s.Guard(ctx, tx) })
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Inspect(t.Context(), "n"); err != nil {
		t.Error(err)
	}
}
