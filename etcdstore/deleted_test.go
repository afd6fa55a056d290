package etcdstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/etcdstore"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// An operator deletes keys by hand. A holder should learn of it at its next renewal, and a waiter
// should wait again.
func TestEntriesAreDeleted(t *testing.T) {
	t.Parallel()
	cli, prefix := newClient(t, sharedServer(t)), newPrefix()
	open := func() *dibs.Client {
		return dibs.New(etcdstore.New(cli, etcdstore.Prefix(prefix)), dibs.TTL(drillTTL), dibs.Timeout(patience))
	}
	for what, keys := range map[string]struct {
		key     string
		options []clientv3.OpOption
	}{
		"the holder": {"holder/", []clientv3.OpOption{clientv3.WithPrefix()}},
		"all":        {"", []clientv3.OpOption{clientv3.WithPrefix()}},
	} {
		t.Run(what, func(t *testing.T) {
			first, second := open(), open()
			held := lock(t, first, "holder")
			before := held.Fence()
			other := lock(t, first, "other")
			waited := make(chan *dibs.Lease, 1)
			go func() { waited <- lock(t, second, "other") }()
			eventually(t, 10*time.Second, func() error { return wantWaiters(t.Context(), first, "other", 1) })
			_, err := cli.Delete(t.Context(), prefix+keys.key, keys.options...)
			must(t, err)
			wantLost(t, held)
			last := max(before, other.Fence())
			if err := other.Unlock(); what != "all" && err != nil {
				t.Error(err)
			}
			next := <-waited // its entry may also have been deleted
			if err := next.Unlock(); what != "all" && err != nil {
				t.Error(err)
			}
			for who, c := range map[string]*dibs.Client{"a new client": open(), "an old client": first} {
				l := lock(t, c, "holder")
				if l.Fence() <= last {
					t.Errorf("%s: fence %d after %d", who, l.Fence(), last)
				}
				last = l.Fence()
				unlock(t, l)
			}
		})
	}
	wantNothing(t, cli, prefix, longestIdle)
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
	cli, prefix := newClient(t, sharedServer(t)), newPrefix()
	locks := dibs.New(etcdstore.New(cli, etcdstore.Prefix(prefix)), dibs.TTL(longSession), dibs.Timeout(patience))
	for _, mode := range []string{"mutex", "reader"} {
		holder, err := locks.RWMutex(mode).Writer().Lock(t.Context())
		must(t, err)
		holders, err := cli.Get(t.Context(), prefix+mode+"/", clientv3.WithPrefix())
		must(t, err)
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
		_, err = cli.Delete(t.Context(), string(holders.Kvs[0].Key)+"\x00", clientv3.WithRange(prefix+mode+"0"))
		must(t, err)
		eventually(t, 10*time.Second, func() error { return wantWaiters(t.Context(), locks, mode, 1) })
		unlock(t, holder)
		begin := time.Now()
		must(t, <-waited)
		if took := time.Since(begin); took > leaseSession {
			t.Errorf("%s: granted %v after the release", mode, took)
		}
	}
}
