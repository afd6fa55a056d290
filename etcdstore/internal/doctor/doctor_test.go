package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/etcdstore"
	"github.com/dibslock/dibs/etcdstore/internal/doctor"
	"github.com/dibslock/dibs/internal/test/checkuptest"
	"github.com/dibslock/dibs/internal/test/etcdtest"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const prefix = "locks/"

func newClient(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	return newUser(t, "", "", endpoints...)
}

func newUser(t *testing.T, user, password string, endpoints ...string) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Username: user, Password: password, DialTimeout: 20 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

func newTarget(cli *clientv3.Client) doctor.Target {
	return doctor.Target{Store: etcdstore.New(cli, etcdstore.Prefix(prefix)), Client: cli, Prefix: prefix, MinTTL: 2 * time.Second}
}

// examine examines a cluster. No write is slow.
func examine(t *testing.T, cli *clientv3.Client) checkup.Findings {
	t.Helper()
	found, err := doctor.ExamineWith(t.Context(), newTarget(cli), time.Hour, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	checkuptest.WantSorted(t, found)
	return found
}

// keys returns the keys with the prefix.
func keys(t *testing.T, cli *clientv3.Client) (all []string) {
	t.Helper()
	reply, err := cli.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range reply.Kvs {
		all = append(all, string(kv.Key))
	}
	return all
}

func TestHealthyCluster(t *testing.T) {
	t.Parallel()
	c := etcdtest.NewCluster(t, 3)
	cli := newClient(t, c.Endpoints()...)
	if found := examine(t, cli); len(found) > 0 {
		t.Errorf("found:\n%v", found)
	}
	if have := keys(t, cli); !slices.Equal(have, []string{"locks//base"}) {
		t.Errorf("the examination left %q", have)
	}
	checkuptest.WantOnly(t, examine(t, newClient(t, c.Endpoints()[0])), checkup.Note, "endpoints", "one of 3 members")
}

// The store's Examine should be that of this package.
func TestExamine(t *testing.T) {
	t.Parallel()
	s := etcdtest.NewServer(t)
	found, err := checkup.Examine(t.Context(), etcdstore.New(newClient(t, s.Endpoint()), etcdstore.Prefix(prefix)))
	if err != nil {
		t.Fatal(err)
	}
	checkuptest.Want(t, found, checkup.Warning, "members", "one member")
	if _, err := checkup.Examine(t.Context(), etcdstore.New(nil)); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a store without a client: %v", err)
	}
}

func TestMembersFail(t *testing.T) {
	t.Parallel()
	c := etcdtest.NewCluster(t, 3)
	cli := newClient(t, c.Endpoints()...)
	leader, err := c.NewLeader(-1)
	if err != nil {
		t.Fatal(err)
	}
	away := (leader + 1) % 3
	c.Partition(away)
	awaitNoLeader(t, cli, c.Members[away])
	checkuptest.Want(t, examine(t, cli), checkup.Warning, "leader", "leader on "+c.Members[away].Endpoint())
	c.Members[away].Kill()
	checkuptest.Want(t, examine(t, cli), checkup.Warning, "unreachable", "unreachable on "+c.Members[away].Endpoint())
	c.Members[leader].Kill()
	last := c.Members[(leader+2)%3]
	awaitNoLeader(t, cli, last)
	checkuptest.Want(t, examine(t, cli), checkup.Critical, "leader", "less than a majority")
	last.Kill()
	var u *driver.UnavailableError
	if found, err := doctor.Examine(t.Context(), newTarget(cli)); !errors.As(err, &u) {
		t.Errorf("without members: %v, %v", found, err)
	}
}

// awaitNoLeader waits until a member has lost its leader.
func awaitNoLeader(t *testing.T, cli *clientv3.Client, s *etcdtest.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		switch reply, err := cli.Status(ctx, s.Endpoint()); {
		case ctx.Err() != nil:
			t.Fatalf("the member has a leader: %v", err)
		case err == nil && reply.Leader == 0:
			return
		}
	}
}

func TestFullDatabase(t *testing.T) {
	t.Parallel()
	const quota, part = 32 << 20, 128 << 10
	cli := newClient(t, etcdtest.NewServer(t, fmt.Sprintf("--quota-backend-bytes=%d", quota)).Endpoint())
	put := func(i int) error {
		_, err := cli.Put(t.Context(), fmt.Sprint("other-", i), strings.Repeat("x", part))
		return err
	}
	filled := 0
	for reply := new(clientv3.StatusResponse); reply.DbSize < quota*4/5; filled++ {
		if err := put(filled); err != nil {
			t.Fatal(err)
		}
		var err error
		if reply, err = cli.Status(t.Context(), cli.Endpoints()[0]); err != nil {
			t.Fatal(err)
		}
	}
	checkuptest.Want(t, examine(t, cli), checkup.Warning, "quota", "its quota is 32.0 MiB")
	for put(filled) == nil {
		filled++
	}
	checkuptest.Want(t, examine(t, cli), checkup.Critical, "alarm", "NOSPACE")
}

func TestSettings(t *testing.T) {
	t.Parallel()
	cli := newClient(t, etcdtest.NewServer(t, "--election-timeout=3000").Endpoint())
	found, err := doctor.ExamineWith(t.Context(), newTarget(cli), 1, 5)
	if err != nil {
		t.Fatal(err)
	}
	checkuptest.Want(t, found, checkup.Warning, "ttl", "a TTL below 5s is refused")
	checkuptest.Want(t, found, checkup.Warning, "latency", "50")
	found, err = doctor.ExamineWith(t.Context(), newTarget(cli), 1, 5) // the first one made revisions
	if err != nil {
		t.Fatal(err)
	}
	checkuptest.Want(t, found, checkup.Warning, "compaction", "the last 5 revisions")
	now, err := cli.Get(t.Context(), "none")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cli.Compact(t.Context(), now.Header.Revision); err != nil {
		t.Fatal(err)
	}
	if found := examine(t, cli); slices.ContainsFunc(found, func(f checkup.Finding) bool { return f.Subject == "compaction" }) {
		t.Errorf("after a compaction, found:\n%v", found)
	}
}

func TestRights(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.NewServer(t).Endpoint()
	cli, ctx := newClient(t, endpoint), t.Context()
	_, err1 := cli.UserAdd(ctx, "root", "secret")
	_, err2 := cli.UserGrantRole(ctx, "root", "root")
	_, err3 := cli.RoleAdd(ctx, "locks")
	_, err4 := cli.RoleGrantPermission(ctx, "locks", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
	_, err5 := cli.RoleAdd(ctx, "readers")
	_, err6 := cli.RoleGrantPermission(ctx, "readers", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermRead))
	err := errors.Join(err1, err2, err3, err4, err5, err6)
	for user, role := range map[string]string{"ann": "locks", "bob": "readers", "eve": ""} {
		_, added := cli.UserAdd(ctx, user, "secret")
		err = errors.Join(err, added)
		if role != "" {
			_, granted := cli.UserGrantRole(ctx, user, role)
			err = errors.Join(err, granted)
		}
	}
	if _, enabled := cli.AuthEnable(ctx); errors.Join(err, enabled) != nil {
		t.Fatal(err, enabled)
	}
	checkuptest.WantOnly(t, examine(t, newUser(t, "ann", "secret", endpoint)), checkup.Warning, "members", "one member")
	for _, user := range []string{"bob", "eve"} {
		checkuptest.Want(t, examine(t, newUser(t, user, "secret", endpoint)), checkup.Critical, "rights", `readwrite --prefix=true "locks/"`)
	}
	checkuptest.Want(t, examine(t, newClient(t, endpoint)), checkup.Critical, "login", "user name is empty")
}
