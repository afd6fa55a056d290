package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/jackc/pgx/v5"
)

// hostile are functions and operators that fit the calls of dibs better than those of the server,
// unless types are exact or the search path is fixed.
const hostile = `
CREATE FUNCTION hostile_text(text, bigint) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked'; END $$;
CREATE FUNCTION hostile_float(double precision, integer) RETURNS double precision LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked'; END $$;
CREATE FUNCTION hashtextextended(text, integer) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked'; END $$;
CREATE OPERATOR || (LEFTARG = text, RIGHTARG = bigint, FUNCTION = hostile_text);
CREATE OPERATOR * (LEFTARG = double precision, RIGHTARG = integer, FUNCTION = hostile_float);
`

// Nobody who may create functions in a schema of the search path has them executed by others.
func TestHostileSchema(t *testing.T) {
	t.Parallel()
	admin := newPool(t, sharedServer(t).URL())
	if _, err := admin.Exec(t.Context(), "CREATE SCHEMA hostile; SET search_path = hostile; "+hostile); err != nil {
		t.Fatal(err)
	}
	pool := newPool(t, sharedServer(t).URL()+"&search_path=hostile,public")
	store := newStoreOn(t, pool)
	a, b := dibs.New(store), dibs.New(store)
	defer a.Close()
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	guarded := func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return store.Guard(ctx, tx) })
	}
	for _, lock := range []func(c *dibs.Client) dibs.Doer{
		func(c *dibs.Client) dibs.Doer { return c.Mutex("mutex") },
		func(c *dibs.Client) dibs.Doer { return c.RWMutex("readers").Reading() },
		func(c *dibs.Client) dibs.Doer { return c.All("one", "two") },
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
	if revoked, err := b.Revoke(ctx, "revoked", lease.Fence(), "test"); err != nil || !revoked {
		t.Errorf("revoked: %v, %v", revoked, err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		lease, err := a.Mutex("released").Lock(ctx)
		if err != nil {
			return err
		}
		return store.ReleaseIn(lease.Context(), tx)
	})
	if err != nil {
		t.Error(err)
	}
}
