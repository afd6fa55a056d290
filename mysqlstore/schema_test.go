package mysqlstore_test

import (
	"strings"
	"testing"

	"github.com/dibslock/dibs/mysqlstore"
)

// Migrate needs only one connection.
func TestMigrateWithOneConnection(t *testing.T) {
	t.Parallel()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	db.SetMaxOpenConns(1)
	newStoreOn(t, db)
}

// Without a database, Migrate says so.
func TestMigrateWithoutADatabase(t *testing.T) {
	t.Parallel()
	err := mysqlstore.New(newDB(t, sharedServer(t).DSN(""))).Migrate(t.Context())
	if err == nil || !strings.Contains(err.Error(), "No database selected") {
		t.Errorf("have %v, want that no database is selected", err)
	}
}
