package etcdstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/etcdstore"
	"github.com/dibslock/dibs/internal/test/etcdtest"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// When etcd has used its space, it accepts no new lock. Holders should keep theirs, and release them.
func TestSpaceIsUsed(t *testing.T) {
	t.Parallel()
	server := etcdtest.NewServer(t, "--quota-backend-bytes=2097152")
	cli := newClient(t, server)
	const ttl = 2 * drillTTL
	locks := dibs.New(etcdstore.New(cli), dibs.TTL(ttl), dibs.Timeout(patience))
	held, released, revoked := lock(t, locks, "held"), lock(t, locks, "released"), lock(t, locks, "revoked")
	waited := make(chan error, 1)
	go func() {
		l, err := locks.Mutex("released").Lock(t.Context())
		if err == nil {
			err = l.Unlock()
		}
		waited <- err
	}()
	eventually(t, 10*time.Second, func() error { return wantWaiters(t.Context(), locks, "released", 1) })
	useSpace(t, cli)

	late := dibs.New(etcdstore.New(newClient(t, server)), dibs.TTL(ttl), dibs.Timeout(patience))
	for who, c := range map[string]*dibs.Client{"an old client": locks, "a new client": late} {
		begin := time.Now()
		_, err := c.Mutex("other").Lock(t.Context())
		wantNoSpace(t, who, err, time.Since(begin))
		if _, err := c.Mutex("held").TryLock(t.Context()); err == nil {
			t.Errorf("%s locked twice", who)
		}
	}
	unlock(t, released)
	if err := <-waited; err != nil {
		t.Errorf("a waiter: %v", err)
	}
	state, err := late.Inspect(t.Context(), "revoked")
	if err != nil || len(state.Holders) != 1 {
		t.Fatalf("inspected: %+v, %v; want a holder", state, err)
	}
	if ok, err := late.Revoke(t.Context(), "revoked", state.Holders[0], "space"); err != nil || !ok {
		t.Errorf("revoked: %v, %v", ok, err)
	}
	select { // at its next renewal
	case <-revoked.Context().Done():
	case <-time.After(ttl):
		t.Errorf("a revoked lease was not lost within %v", ttl)
	}
	<-time.After(2 * ttl)
	if err := held.Err(); err != nil {
		t.Errorf("held after twice its TTL: %v", err)
	}
	freeSpace(t, cli)
	unlock(t, lock(t, late, "other"))
	unlock(t, held)
}

// wantNoSpace checks the error of a request for a new lock.
func wantNoSpace(t *testing.T, who string, err error, took time.Duration) {
	t.Helper()
	var refused *driver.UnavailableError
	if !errors.As(err, &refused) || !refused.Refused || !errors.Is(err, rpctypes.ErrNoSpace) || !strings.Contains(err.Error(), "--quota-backend-bytes") {
		t.Errorf("%s: %v, want that etcd refused it", who, err)
	}
	if took >= patience {
		t.Errorf("%s: refused after %v", who, took)
	}
}

// useSpace writes until etcd has no space.
func useSpace(t *testing.T, cli *clientv3.Client) {
	t.Helper()
	value := string(bytes.Repeat([]byte("x"), 100<<10))
	for i := 0; ; i++ {
		_, err := cli.Put(t.Context(), fmt.Sprint("filler/", i), value)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		must(t, err)
	}
}

// freeSpace does what the error says.
func freeSpace(t *testing.T, cli *clientv3.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	deleted, err := cli.Delete(ctx, "filler/", clientv3.WithPrefix())
	must(t, err)
	_, err = cli.Compact(ctx, deleted.Header.Revision, clientv3.WithCompactPhysical())
	must(t, err)
	_, err = cli.Defragment(ctx, cli.Endpoints()[0])
	must(t, err)
	_, err = cli.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	must(t, err)
}
