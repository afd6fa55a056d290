package pgstore_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/pgstore"
)

// Names, tokens and reasons are the same with every encoding of the database and of two clients'
// connections.
func TestEncodings(t *testing.T) {
	t.Parallel()
	names := 100
	if os.Getenv("DIBS_LONG") == "1" {
		names = 1000
	}
	admin := newPool(t, sharedServer(t).URL())
	for encoding, client := range map[string]string{"UTF8": "LATIN1", "LATIN1": "LATIN1", "EUC_JP": "SJIS", "SQL_ASCII": "LATIN1"} {
		t.Run(encoding, func(t *testing.T) {
			database := fmt.Sprintf("encoding_%d", schemas.Add(1))
			_, err := admin.Exec(t.Context(), fmt.Sprintf("CREATE DATABASE %s ENCODING '%s' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'", database, encoding))
			if err != nil {
				t.Fatal(err)
			}
			url := strings.Replace(sharedServer(t).URL(), "/postgres?", "/"+database+"?", 1)
			one, other := pgstore.New(newPool(t, url+"&client_encoding=UTF8")), pgstore.New(newPool(t, url+"&client_encoding="+client))
			if err := one.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			sqldrill.TellsNamesApart(t, names, one, other)
			sqldrill.CarriesTexts(t, one, other)
		})
	}
}
