package localstore_test

import (
	"path/filepath"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/localstore"
	"github.com/dibslock/dibs/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) driver.Store { return open(t, filepath.Join(t.TempDir(), "locks.db")) })
	storetest.RunTickets(t, func(t *testing.T) driver.Store { return open(t, filepath.Join(t.TempDir(), "locks.db")) })
}

// Each case uses its own file: in a bubble, the time to wait for another process opening the file
// is over at once.
func TestClocks(t *testing.T) {
	dir := t.TempDir()
	storetest.RunClocks(t, func(t *testing.T) driver.Store { return open(t, filepath.Join(dir, filepath.Base(t.Name()))) })
}

func open(t *testing.T, path string) *localstore.Store {
	t.Helper()
	s, err := localstore.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Many clients run random operations in real time, and all results are consistent.
func TestHistory(t *testing.T) {
	t.Parallel()
	storetest.RunHistory(t, open(t, filepath.Join(t.TempDir(), "locks.db")), 1, 3000)
}
