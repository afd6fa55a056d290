package zkstore_test

import (
	"errors"
	"path"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/zkstore"
	"github.com/go-zookeeper/zk"
)

// deleteAll deletes a znode and all below it.
func deleteAll(conn *zk.Conn, znode string) error {
	for {
		entries, err := children(conn, znode)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if err := deleteAll(conn, path.Join(znode, entry)); err != nil {
				return err
			}
		}
		err = conn.Delete(znode, -1)
		if errors.Is(err, zk.ErrNotEmpty) {
			continue
		}
		if errors.Is(err, zk.ErrNoNode) {
			err = nil
		}
		return err
	}
}

// An operator deletes znodes by hand. A holder should learn of it at its next renewal, and a waiter
// should wait again.
func TestEntriesAreDeleted(t *testing.T) {
	t.Parallel()
	server, prefix := sharedServer(t), newPrefix()
	conn := connect(t, server)
	newLocks := func() *dibs.Client {
		c := dibs.New(open(t, endpoints(server), zkstore.Prefix(prefix)), dibs.TTL(drillTTL), dibs.Timeout(patience))
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	for what, znode := range map[string]string{"the holder": path.Join(prefix, "holder"), "all": prefix} {
		t.Run(what, func(t *testing.T) {
			first, second := newLocks(), newLocks()
			held := lock(t, first, "holder")
			before := held.Fence()
			other := lock(t, first, "other")
			waited := make(chan *dibs.Lease, 1)
			go func() { waited <- lock(t, second, "other") }()
			eventually(t, 10*time.Second, func() error { return wantWaiters(t.Context(), first, "other", 1) })
			must(t, deleteAll(conn, znode))
			wantLost(t, held)
			last := max(before, other.Fence())
			if err := other.Unlock(); what != "all" && err != nil {
				t.Error(err)
			}
			next := <-waited // its entry may also have been deleted
			if err := next.Unlock(); what != "all" && err != nil {
				t.Error(err)
			}
			for who, c := range map[string]*dibs.Client{"a new client": newLocks(), "an old client": first} {
				l := lock(t, c, "holder")
				if l.Fence() <= last {
					t.Errorf("%s: fence %d after %d", who, l.Fence(), last)
				}
				last = l.Fence()
				unlock(t, l)
			}
		})
	}
	wantNothing(t, conn, prefix, longestIdle)
}

// wantLost waits until a holder learns that its lease was lost.
func wantLost(t *testing.T, l *dibs.Lease) {
	t.Helper()
	select {
	case <-l.Context().Done():
	case <-time.After(drillTTL):
		t.Errorf("not lost after %v", drillTTL)
	}
	var lost *dibs.LostError
	if err := l.Err(); !errors.As(err, &lost) || lost.Reason != dibs.ReasonMissing {
		t.Errorf("%v, want that the store no longer has it", err)
	}
}

// A waiter whose entry was deleted should be granted the lock nevertheless.
func TestWaiterIsDeleted(t *testing.T) {
	t.Parallel()
	server, prefix := sharedServer(t), newPrefix()
	conn := connect(t, server)
	locks := dibs.New(open(t, endpoints(server), zkstore.Prefix(prefix)), dibs.TTL(longSession), dibs.Timeout(patience))
	t.Cleanup(func() { _ = locks.Close() })
	for _, mode := range []string{"mutex", "reader"} {
		holder, err := locks.RWMutex(mode).Writer().Lock(t.Context())
		must(t, err)
		own := onlyChild(t, conn, path.Join(prefix, mode))
		waited := make(chan error, 1)
		go func() {
			acquire := locks.RWMutex(mode).Writer().Lock
			if mode == "reader" {
				acquire = locks.RWMutex(mode).Reader().Lock
			}
			l, err := acquire(t.Context())
			if err == nil {
				err = l.Unlock()
			}
			waited <- err
		}()
		eventually(t, 10*time.Second, func() error { return wantWaiters(t.Context(), locks, mode, 1) })
		entries, err := children(conn, path.Join(prefix, mode))
		must(t, err)
		for _, entry := range entries {
			if entry != path.Base(own) {
				must(t, conn.Delete(path.Join(prefix, mode, entry), -1))
			}
		}
		eventually(t, 10*time.Second, func() error { return wantWaiters(t.Context(), locks, mode, 1) })
		unlock(t, holder)
		begin := time.Now()
		must(t, <-waited)
		if took := time.Since(begin); took > session {
			t.Errorf("%s: granted %v after the release", mode, took)
		}
	}
}
