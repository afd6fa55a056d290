package doctor_test

import (
	"strings"
	"testing"

	"github.com/dibslock/dibs/pgstore"
	"github.com/dibslock/dibs/pgstore/internal/doctor"
	"github.com/dibslock/dibs/sqlstore"
)

// The texts of all tables and functions are found, whatever the name of the schema.
func TestTextsOfTheSchema(t *testing.T) {
	for _, schema := range []string{"dibs", `my "locks"`, "a$$b"} {
		statements, err := pgstore.SQL(schema, 0, pgstore.Version)
		if err != nil {
			t.Fatal(err)
		}
		tables, functions := sqlstore.TablesOf(strings.Join(statements, ";\n")), doctor.FunctionsOf(statements)
		if len(tables) != 7 || len(functions) < 20 || functions["waiter_ttl_v1"] == "" || functions["lock_v1"] == "" {
			t.Errorf("%s: tables %q, %d functions", schema, tables, len(functions))
		}
	}
}
