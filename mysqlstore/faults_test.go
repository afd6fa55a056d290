package mysqlstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/mysqltest"
	"github.com/dibslock/dibs/internal/sqldrill"
	"github.com/dibslock/dibs/mysqlstore"
)

// until runs f again and again, with pauses, until stop ends.
func until(stop context.Context, pause time.Duration, f func()) {
	for stop.Err() == nil {
		f()
		select {
		case <-time.After(pause):
		case <-stop.Done():
		}
	}
}

// The server forgets nothing when it is killed.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	sharedServer(t) // skips the test without a server
	server, err := mysqltest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	dsn := server.DSN("mysql")
	first := mysqlstore.New(newDB(t, dsn))
	if err := first.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	held, err := dibs.New(first).Mutex("held").Lock(t.Context(), dibs.TTL(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	stop, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	var faults sync.WaitGroup
	faults.Go(func() {
		until(stop, time.Second, func() {
			server.Kill()
			if err := server.Restart(); err != nil {
				t.Error(err)
			}
		})
	})
	n := sqldrill.Load(t, stop, func() driver.Store { return mysqlstore.New(newDB(t, dsn)) })
	faults.Wait()
	if n == 0 {
		t.Error("the name was never held")
	}
	if err := held.Unlock(); err != nil {
		t.Errorf("the lease that was held all the time: %v", err)
	}
	t.Logf("held %d times", n)
}

// Each connection may be ended at any time.
func TestConnectionsAreKilled(t *testing.T) {
	t.Parallel()
	admin := newDB(t, sharedServer(t).DSN("mysql"))
	const prefix, user = "killed_", "killed"
	s := mysqlstore.New(admin, mysqlstore.Prefix(prefix))
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustExec(t, admin, "CREATE OR REPLACE USER killed@'127.0.0.1'", "GRANT ALL ON *.* TO killed@'127.0.0.1'")
	stop, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	var faults sync.WaitGroup
	killed := 0
	faults.Go(func() {
		until(stop, 50*time.Millisecond, func() {
			for _, id := range connectionsOf(t, admin, user) {
				if _, err := admin.ExecContext(t.Context(), "KILL CONNECTION ?", id); err == nil { // otherwise it has ended
					killed++
				}
			}
		})
	})
	dsn := user + "@tcp(" + sharedServer(t).Addr() + ")/mysql?interpolateParams=true"
	n := sqldrill.Load(t, stop, func() driver.Store { return mysqlstore.New(newDB(t, dsn), mysqlstore.Prefix(prefix)) })
	faults.Wait()
	if n == 0 || killed == 0 {
		t.Errorf("the name was held %d times, and %d connections were killed", n, killed)
	}
	t.Logf("held %d times, %d connections killed", n, killed)
}

// Many processes create the tables at once.
func TestMigrate(t *testing.T) {
	t.Parallel()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if err := mysqlstore.New(db, mysqlstore.Prefix("at once `$1` ")).Migrate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}
