package pgstore_test

import "testing"

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
	useVerbs(t, pool, newStoreOn(t, pool))
}
