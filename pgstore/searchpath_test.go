package pgstore_test

import "testing"

// hostile defines functions and operators. Unless types are exact or the search path is fixed, they
// fit dibs' calls better than the server's own.
const hostile = `
CREATE FUNCTION hostile_text(text, bigint) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked'; END $$;
CREATE FUNCTION hostile_float(double precision, integer) RETURNS double precision LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked'; END $$;
CREATE FUNCTION hashtextextended(text, integer) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked'; END $$;
CREATE OPERATOR || (LEFTARG = text, RIGHTARG = bigint, FUNCTION = hostile_text);
CREATE OPERATOR * (LEFTARG = double precision, RIGHTARG = integer, FUNCTION = hostile_float);
`

// A user with the right to create functions in a search-path schema must not be able to make
// others execute them.
func TestHostileSchema(t *testing.T) {
	t.Parallel()
	admin := newPool(t, sharedServer(t).URL())
	if _, err := admin.Exec(t.Context(), "CREATE SCHEMA hostile; SET search_path = hostile; "+hostile); err != nil {
		t.Fatal(err)
	}
	pool := newPool(t, sharedServer(t).URL()+"&search_path=hostile,public")
	useVerbs(t, pool, newStoreOn(t, pool))
}
