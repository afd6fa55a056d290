package etcdstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/etcdstore"
	"github.com/dibslock/dibs/storetest"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
)

// A user needs no more than a role with readwrite on the store's prefix.
func TestLeastRole(t *testing.T) {
	t.Parallel()
	const prefix, password = "locks/", "secret"
	server := startServer(t)
	enableAuth(t, newClient(t, server), prefix, password)
	config := clientv3.Config{Endpoints: []string{server.Endpoint()}, Username: "dibs", Password: password}
	cli := newClientWith(t, config)
	useVerbs(t, etcdstore.New(cli, etcdstore.Prefix(prefix)))
	_, err := dibs.New(etcdstore.New(cli, etcdstore.Prefix("other/"))).Mutex("n").Lock(t.Context())
	var refused *driver.UnavailableError
	if !errors.As(err, &refused) || !refused.Refused || !errors.Is(err, rpctypes.ErrPermissionDenied) || !strings.Contains(err.Error(), "readwrite") {
		t.Errorf("outside the role: %v", err)
	}
	if isLong() {
		storetest.Run(t, func(t *testing.T) driver.Store {
			return etcdstore.New(newClientWith(t, config), etcdstore.Prefix(prefix+newPrefix()))
		})
	}
}

// enableAuth creates the user dibs, with a role for a prefix.
func enableAuth(t *testing.T, cli *clientv3.Client, prefix, password string) {
	t.Helper()
	ctx := t.Context()
	var errs []error
	try := func(_ any, err error) { errs = append(errs, err) }
	try(cli.UserAdd(ctx, "root", password))
	try(cli.UserGrantRole(ctx, "root", "root"))
	try(cli.RoleAdd(ctx, "locks"))
	try(cli.RoleGrantPermission(ctx, "locks", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite)))
	try(cli.UserAdd(ctx, "dibs", password))
	try(cli.UserGrantRole(ctx, "dibs", "locks"))
	try(cli.AuthEnable(ctx))
	must(t, errors.Join(errs...))
}

// A token from a login is not known to the other members at once. A watch on such a member fails for
// a moment; the store should not report this as a lost connection.
func TestWatchAfterLogin(t *testing.T) {
	t.Parallel()
	const prefix, password, clients = "locks/", "secret", 40
	c := startCluster(t, "--bcrypt-cost=4") // fast logins
	enableAuth(t, newClient(t, c.Members...), prefix, password)
	first := make(chan driver.Event, clients)
	for range clients {
		cli := newClientWith(t, clientv3.Config{Endpoints: c.Endpoints(), Username: "dibs", Password: password})
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		go func() {
			var once sync.Once
			_ = etcdstore.New(cli, etcdstore.Prefix(prefix)).Watch(ctx, "client", nil, func(e driver.Event) { once.Do(func() { first <- e }) })
		}()
	}
	for range clients {
		if e := <-first; e.Kind != driver.EventConnected {
			t.Errorf("the first event is %+v, want EventConnected", e)
		}
	}
}

// A client with a namespace sees its own keys only.
func TestNamespace(t *testing.T) {
	t.Parallel()
	const space = "team/"
	plain := newClient(t, startServer(t))
	open := func(t *testing.T) *clientv3.Client {
		cli := newClientWith(t, clientv3.Config{Endpoints: plain.Endpoints()})
		cli.KV, cli.Watcher, cli.Lease = namespace.NewKV(cli.KV, space), namespace.NewWatcher(cli.Watcher, space), namespace.NewLease(cli.Lease, space)
		return cli
	}
	cli := open(t)
	useVerbs(t, etcdstore.New(cli))
	all, err := plain.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	must(t, err)
	for _, kv := range all.Kvs {
		if !strings.HasPrefix(string(kv.Key), space) {
			t.Errorf("the key %s is outside the namespace", kv.Key)
		}
	}
	if isLong() {
		storetest.Run(t, func(t *testing.T) driver.Store { return etcdstore.New(open(t), etcdstore.Prefix(newPrefix())) })
	}
}

// useVerbs uses all verbs of a store.
func useVerbs(t *testing.T, s driver.Store) {
	t.Helper()
	ctx := t.Context()
	first, second := dibs.New(s, dibs.TTL(longSession), dibs.Timeout(patience)), dibs.New(s, dibs.TTL(longSession), dibs.Timeout(patience))
	l := lock(t, first, "a")
	if _, err := second.Mutex("a").TryLock(ctx); !errors.Is(err, dibs.ErrBusy) {
		t.Errorf("a try: %v", err)
	}
	brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := second.Mutex("a").Lock(brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a cancelled wait: %v", err)
	}
	var all []error
	try := func(err error) { all = append(all, err) }
	waited := make(chan error, 1)
	go func() {
		l, err := second.Mutex("a").Lock(ctx)
		if err == nil {
			err = l.Unlock()
		}
		waited <- err
	}()
	eventually(t, 10*time.Second, func() error { return wantWaiters(ctx, first, "a", 1) })
	select {
	case <-l.Wanted():
	case <-time.After(leaseSession):
		t.Error("the lease is not wanted")
	}
	try(l.Extend(ctx, 2*time.Minute))
	unlock(t, l)
	try(<-waited)

	reader, err := first.RWMutex("rw").Reader().Lock(ctx)
	try(err)
	try(reader.TryUpgrade(ctx))
	try(reader.Downgrade(ctx))
	unlock(t, reader)
	several, err := first.All([]string{"a", "b/c"}).Lock(ctx)
	try(err)
	unlock(t, several)
	reserved := lock(t, first, "reserved", dibs.MinHold(time.Minute))
	unlock(t, reserved)

	victim := lock(t, first, "victim")
	state, err := second.Inspect(ctx, "victim")
	try(err)
	if len(state.Holders) == 1 {
		_, err = second.Revoke(ctx, "victim", state.Holders[0], "test")
		try(err)
		<-victim.Context().Done()
	} else {
		t.Errorf("%+v, want a holder", state)
	}
	for _, err := range second.List(ctx, "*") {
		try(err)
	}
	try(first.Close())
	try(second.Close())
	must(t, errors.Join(all...))
}
