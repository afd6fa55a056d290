package localstore_test

import (
	"path/filepath"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/localstore"
	"github.com/dibslock/dibs/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) dibs.Store { return open(t, filepath.Join(t.TempDir(), "locks.db")) })
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
