package pgstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// useVerbs uses all a store's verbs, with guards in a pool's transactions.
func useVerbs(t *testing.T, pool *pgxpool.Pool, store *pgstore.Store) {
	t.Helper()
	a, b := dibs.New(store, dibs.Timeout(5*time.Second)), dibs.New(store, dibs.Timeout(5*time.Second))
	defer a.Close()
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	inTransaction := func(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
		return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error { return do(ctx, tx) })
	}
	guarded := func(ctx context.Context) error { return inTransaction(ctx, store.GuardPgx) }
	for _, lock := range []func(c *dibs.Client) dibs.Doer{
		func(c *dibs.Client) dibs.Doer { return c.Mutex("mutex") },
		func(c *dibs.Client) dibs.Doer { return c.RWMutex("readers").Reader() },
		func(c *dibs.Client) dibs.Doer { return c.All([]string{"one", "two"}) },
	} {
		handedOver := make(chan error, 1)
		if err := lock(a).Do(ctx, func(held context.Context) error {
			go func() { handedOver <- lock(b).Do(ctx, guarded) }()
			return guarded(held)
		}); err != nil {
			t.Error(err)
		}
		if err := <-handedOver; err != nil {
			t.Error(err)
		}
	}
	lease, err := a.Mutex("revoked").Lock(ctx, dibs.TTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Extend(ctx, time.Hour); err != nil {
		t.Error(err)
	}
	if names, err := store.List(ctx, "*"); err != nil || len(names) != 1 {
		t.Errorf("listed %q, %v", names, err)
	}
	if state, err := b.Inspect(ctx, "revoked"); err != nil || state.Holding != 1 {
		t.Errorf("%+v, %v", state, err)
	}
	if revoked, err := b.Revoke(ctx, "revoked", dibs.Holder{Fence: lease.Fence()}, "test"); err != nil || !revoked {
		t.Errorf("revoked: %v, %v", revoked, err)
	}
	writing, err := a.RWMutex("written").Writer().Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(writing.Downgrade(ctx), writing.Unlock()); err != nil {
		t.Error(err)
	}
	if lease, err = a.Mutex("released").Lock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := inTransaction(lease.Context(), store.ReleaseInPgx); err != nil {
		t.Error(err)
	}
	if state, err := b.Inspect(ctx, "released"); err != nil || state.Holding != 0 {
		t.Errorf("%+v, %v", state, err)
	}
}

// All verbs should work, whatever the session's settings.
func TestSettingsOfTheSession(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{
		"search path":   "search_path=pg_temp",
		"jit":           "jit_above_cost=0&jit_inline_above_cost=0&jit_optimize_above_cost=0",
		"no plans":      "enable_seqscan=off&enable_indexscan=off&enable_indexonlyscan=off&enable_bitmapscan=off&enable_nestloop=off&enable_sort=off&enable_hashagg=off",
		"generic plans": "plan_cache_mode=force_generic_plan",
		"statement":     "statement_timeout=50",
		"lock":          "lock_timeout=1",
		"formats":       "bytea_output=escape&DateStyle=German&IntervalStyle=sql_standard&TimeZone=Asia/Kathmandu&extra_float_digits=-15&standard_conforming_strings=off&array_nulls=off&transform_null_equals=on",
		"row security":  "row_security=off",
		"not durable":   "synchronous_commit=local",
		"bodies":        "check_function_bodies=off",
		"serializable":  "default_transaction_isolation=serializable&default_transaction_deferrable=on",
		"variables":     "plpgsql.variable_conflict=use_column&plpgsql.extra_errors=all&plpgsql.check_asserts=off",
		"idle":          "idle_session_timeout=100",
		"transaction":   "transaction_timeout=200",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := newStore(t)
			pool := newPool(t, sharedServer(t).URL()+"&"+settings)
			if err := pool.Ping(t.Context()); err != nil && strings.Contains(err.Error(), "unrecognized configuration parameter") {
				t.Skip(err)
			}
			store := pgstore.New(pool, pgstore.Schema(direct.SchemaName()))
			if strings.Contains(settings, "_timeout=") { // it limits transactions of the program as well
				pool = newPool(t, sharedServer(t).URL())
			}
			useVerbs(t, pool, store)
		})
	}
}

// A read-only session should be refused, and the setting named.
func TestReadOnlySession(t *testing.T) {
	t.Parallel()
	direct := newStore(t)
	pool := newPool(t, sharedServer(t).URL()+"&default_transaction_read_only=on")
	locks := dibs.New(pgstore.New(pool, pgstore.Schema(direct.SchemaName())), dibs.Timeout(30*time.Second))
	defer locks.Close()
	_, err := locks.Mutex("n").TryLock(t.Context())
	if !errors.Is(err, dibs.ErrUnavailable) || !strings.Contains(err.Error(), "default_transaction_read_only is on") {
		t.Errorf("have %v, want the setting", err)
	}
}

// Without triggers a commit would release nothing, so it is refused. All else works.
func TestSessionWithoutTriggers(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL()+"&session_replication_role=replica")
	store := newStoreOn(t, pool)
	locks := dibs.New(store)
	defer locks.Close()
	err := locks.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return errors.Join(store.GuardPgx(ctx, tx), store.ReleaseInPgx(ctx, tx))
		})
	})
	if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "session_replication_role") {
		t.Errorf("have %v, want the setting", err)
	}
}
