package mysqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/mysqlstore"
)

// A longest prefix is one with which each verb works.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	dsn := sharedServer(t).DSN("mysql")
	longest := fmt.Sprintf("%051d", prefixes.Add(1))
	for _, prefix := range []string{"", longest, strings.Repeat("ä", 40) + fmt.Sprint(prefixes.Add(1)), fmt.Sprintf("`%d`", prefixes.Add(1))} {
		if err := mysqlstore.CheckPrefix(prefix); err != nil {
			t.Errorf("%q: %v", prefix, err)
		}
		s := mysqlstore.New(newDB(t, dsn), mysqlstore.Prefix(prefix))
		if err := s.Migrate(t.Context()); err != nil {
			t.Errorf("%q: %v", prefix, err)
			continue
		}
		locks := dibs.New(s, dibs.Timeout(10*time.Second))
		defer locks.Close()
		l, err := locks.Mutex("n").TryLock(t.Context())
		if err != nil {
			t.Errorf("%q: %v", prefix, err)
			continue
		}
		if err := l.Unlock(); err != nil {
			t.Errorf("%q: %v", prefix, err)
		}
	}
	closed := newDB(t, dsn)
	_ = closed.Close() // an error of it would mean that something was sent
	for prefix, says := range map[string]string{
		longest + "x":            "52 characters, want up to 51",
		strings.Repeat("ä", 60):  "60 characters, want up to 51",
		"a\x00":                  "NUL",
		"a\xff":                  "UTF-8",
		"locks \U0001f512":       "U+FFFF",
		strings.Repeat("x", 500): "500 characters",
	} {
		err := mysqlstore.New(closed, mysqlstore.Prefix(prefix)).Migrate(t.Context())
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: have %v, want ErrInvalid with %s", prefix, err, says)
		}
	}
}

// A pool with one connection is enough, and one store waits for another.
func TestMigrateConcurrently(t *testing.T) {
	t.Parallel()
	dsn := sharedServer(t).DSN("mysql")
	prefix := fmt.Sprintf("together_%d_", prefixes.Add(1))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			db := newDB(t, dsn)
			db.SetMaxOpenConns(1)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := mysqlstore.New(db, mysqlstore.Prefix(prefix)).Migrate(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// An error of Migrate names the operation and the prefix, whichever step has failed.
func TestMigrateErrors(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	name := fmt.Sprintf("denied_%d", prefixes.Add(1)) // the database and the user: a test may run again
	mustExec(t, newDB(t, server.DSN("mysql")), "CREATE DATABASE "+name, "CREATE USER "+name+"@'127.0.0.1'", "GRANT SELECT ON "+name+".* TO "+name+"@'127.0.0.1'")
	closed := newDB(t, server.DSN("mysql"))
	_ = closed.Close() // the test needs a pool without connections
	for _, c := range []struct {
		store   *mysqlstore.Store
		refused bool
		says    string
	}{
		{mysqlstore.New(newDB(t, strings.Replace(server.DSN(name), "root@", name+"@", 1))), true, "CREATE command denied"},
		{mysqlstore.New(newDB(t, server.DSN(""))), true, "No database selected"},
		{mysqlstore.New(closed), true, "closed"},
	} {
		err := c.store.Migrate(t.Context())
		var u *driver.UnavailableError
		if !errors.As(err, &u) || u.Refused != c.refused || !strings.Contains(err.Error(), c.says) {
			t.Errorf("have %#v, want an UnavailableError with %s", err, c.says)
			continue
		}
		if text := err.Error(); !strings.HasPrefix(text, `dibs: create the tables "dibs_": store unavailable: `) || strings.Count(text, "unavailable") != 1 {
			t.Errorf("have %s", text)
		}
	}
}
