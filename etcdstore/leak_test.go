package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/etcdstore"
	"github.com/dibslock/dibs/internal/test/etcdtest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A lock with a long TTL has an etcd lease for itself. It should end with the lock, and a request
// that got no lock should leave none.
func TestLongLeasesEnd(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Hour
	cli := newClient(t, etcdtest.NewServer(t))
	first, second := dibs.New(etcdstore.New(cli), dibs.TTL(ttl), dibs.Timeout(patience)), dibs.New(etcdstore.New(cli), dibs.TTL(ttl), dibs.Timeout(patience))
	for range 5 {
		lease := lock(t, first, "n")
		if _, err := second.Mutex("n").TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("%v, want ErrBusy", err)
		}
		waited := make(chan *dibs.Lease, 1)
		go func() { waited <- lock(t, second, "n") }()
		eventually(t, 10*time.Second, func() error { return wantWaiters(t.Context(), first, "n", 1) })
		unlock(t, lease)
		unlock(t, <-waited)
	}
	eventually(t, 10*time.Second, func() error { return wantNoLease(t.Context(), cli, time.Minute) })
}

// wantNoLease returns an error if etcd has a lease with a longer TTL.
func wantNoLease(ctx context.Context, cli *clientv3.Client, longest time.Duration) error {
	granted, err := grantedTTLs(ctx, cli)
	if err == nil && slices.ContainsFunc(granted, func(ttl time.Duration) bool { return ttl > longest }) {
		err = fmt.Errorf("leases are left: %v", granted)
	}
	return err
}

// grantedTTLs returns the TTLs with which etcd's leases were granted. The TTL of a lease that ends
// meanwhile is zero.
func grantedTTLs(ctx context.Context, cli *clientv3.Client) (all []time.Duration, err error) {
	leases, err := cli.Leases(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range leases.Leases {
		reply, err := cli.TimeToLive(ctx, l.ID)
		if err != nil {
			return nil, err
		}
		all = append(all, time.Duration(reply.GrantedTTL)*time.Second)
	}
	return all, nil
}

// The entries of a multi-lock with a long TTL are on the same etcd lease. It should last until the
// last entry has moved or ended.
func TestLongMultiLock(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Minute
	names := []string{"a", "b", "c"}
	for what, end := range map[string]func(*testing.T, *dibs.Lease){
		"extended": func(t *testing.T, l *dibs.Lease) {
			if err := l.Extend(t.Context(), 2*ttl); err != nil {
				t.Error(err)
			}
		},
		"reserved": func(t *testing.T, l *dibs.Lease) { unlock(t, l) },
	} {
		t.Run(what, func(t *testing.T) {
			cli := newClient(t, etcdtest.NewServer(t))
			s := etcdstore.New(cli)
			first, second := dibs.New(s, dibs.TTL(ttl), dibs.Timeout(patience)), dibs.New(s, dibs.TTL(ttl), dibs.Timeout(patience))
			l, err := first.All(names).Lock(t.Context(), dibs.MinHold(time.Minute))
			must(t, err)
			end(t, l)
			eventually(t, 10*time.Second, func() error { // the lease that all had is revoked in the background
				granted, err := grantedTTLs(t.Context(), cli)
				if err != nil {
					return err
				}
				// After a slow reply, there is also the longer lease for marks.
				granted = slices.DeleteFunc(granted, func(ttl time.Duration) bool { return ttl > 5*time.Minute })
				if len(granted) != len(names) {
					return fmt.Errorf("%d leases, want %d", len(granted), len(names))
				}
				return nil
			})
			for _, name := range names {
				if _, err := second.Mutex(name).TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
					t.Errorf("%s: %v, want ErrBusy", name, err)
				}
			}
		})
	}
}
