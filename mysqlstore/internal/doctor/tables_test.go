package doctor_test

import (
	"testing"

	"github.com/dibslock/dibs/mysqlstore"
	"github.com/dibslock/dibs/mysqlstore/internal/doctor"
)

// The texts of all tables and procedures are found, whatever the prefix.
func TestTextsOfTheSchema(t *testing.T) {
	for _, prefix := range []string{"dibs_", "my `$1 locks` "} {
		statements, err := mysqlstore.SQL(prefix, 0, mysqlstore.Version)
		if err != nil {
			t.Fatal(err)
		}
		tables, procedures := doctor.Wanted(statements)
		if len(tables) != 8 || len(procedures) < 20 || procedures[prefix+"lock_v1"] == "" {
			t.Errorf("%q: tables %q, %d procedures", prefix, tables, len(procedures))
		}
	}
}
