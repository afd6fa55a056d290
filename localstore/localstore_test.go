package localstore_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/history"
	"github.com/dibslock/dibs/localstore"
	"github.com/dibslock/dibs/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) driver.Store { return open(t, filepath.Join(t.TempDir(), "locks.db")) })
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
	history.Run(t, open(t, filepath.Join(t.TempDir(), "locks.db")), history.Plan{Seed: 1, Ops: 3000})
}

// Vote requests are rejected, so a localstore cannot be a quorum node.
func TestVoteRejected(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "locks.db"))
	b := &driver.VoteRequest{Ticket: 1, Fence: 1}
	c := driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Vote: b}
	_, acquire := s.Acquire(t.Context(), c)
	_, resize := s.Resize(t.Context(), c)
	_, release := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: "t", Vote: b})
	for _, err := range []error{acquire, resize, release, s.Cancel(t.Context(), c)} {
		if !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
	}
}
