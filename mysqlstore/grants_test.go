package mysqlstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/mysqlstore"
)

// A user needs only the rights in docs/databases.md.
func TestGrants(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	admin := newDB(t, server.DSN("mysql"))
	name := fmt.Sprintf("granted_%d", prefixes.Add(1)) // the database and the user: a test may run again
	mustExec(t, admin, "CREATE DATABASE "+name, "CREATE USER "+name+"@'127.0.0.1'",
		"GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON "+name+".* TO "+name+"@'127.0.0.1'")
	if err := mysqlstore.New(newDB(t, server.DSN(name))).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	db := newDB(t, strings.Replace(server.DSN(name), "root@", name+"@", 1))
	s := mysqlstore.New(db)
	locks := dibs.New(s, dibs.Timeout(10*time.Second))
	defer locks.Close()
	l, err := locks.Mutex("n").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := beginGuarded(l.Context(), t, s, db).Commit(); err != nil {
		t.Error(err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Error(err)
	}
}
