package mysqlstore_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/mysqlstore"
)

// Names, tokens and reasons are the same with every character set and collation of the database
// and of two clients' connections.
func TestEncodings(t *testing.T) {
	t.Parallel()
	names := 100
	if os.Getenv("DIBS_LONG") == "1" {
		names = 1000
	}
	admin := newDB(t, sharedServer(t).DSN("mysql"))
	for _, c := range []struct{ database, client string }{
		{"utf8mb4 COLLATE utf8mb4_general_ci", "charset=latin1"},
		{"latin1 COLLATE latin1_german2_ci", "charset=utf8mb4&collation=utf8mb4_unicode_ci"},
		{"utf16 COLLATE utf16_unicode_ci", "charset=utf8mb3"},
		{"sjis", "charset=ascii"},
		{"binary", "charset=cp1251"},
	} {
		t.Run(c.database, func(t *testing.T) {
			name := fmt.Sprintf("encoding_%d", prefixes.Add(1))
			mustExec(t, admin, "CREATE DATABASE "+name+" CHARACTER SET "+c.database)
			one, other := mysqlstore.New(newDB(t, sharedServer(t).DSN(name))), mysqlstore.New(newDB(t, sharedServer(t).DSN(name)+"&"+c.client))
			if err := other.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			sqldrill.TellsNamesApart(t, names, one, other)
			sqldrill.CarriesTexts(t, one, other)
		})
	}
}
