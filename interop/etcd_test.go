//go:build unix

package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/etcdstore"
	"github.com/dibslock/dibs/internal/test/etcdtest"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcdPairs returns dibs beside each of etcd's own tools.
func etcdPairs() []pair {
	version := toolVersion{version: etcdtest.Version, runtime: goRuntime(), key: etcdPrefix + "order:42/…"}
	ctl := side{turns: each(etcdctl), victim: etcdctlCommand, part: "visit"}
	return []pair{
		{"concurrency.Mutex", "etcd", "order:mutex", false, goSide("dibs.Mutex", dibsMutex), goSide("concurrency.Mutex", concurrencyMutex), version},
		{"concurrency.Election", "etcd", "order:election", false, goSide("dibs.Election", dibsElection), goSide("concurrency.Election", concurrencyElection), version},
		{"etcdctl lock", "etcd", "order:ctl", false, goSide("dibs.Mutex", dibsMutex), ctl, version},
	}
}

// TestEtcd checks that dibs and etcd's own tools exclude each other, also while processes of both
// sides are killed. It takes 30 s with DIBS_INTEROP, and otherwise a few seconds.
func TestEtcd(t *testing.T) {
	t.Parallel()
	server := etcdtest.NewServer(t)
	rows := runPairs(t, etcdPairs(), func(t *testing.T, p pair) pairRow {
		return newPairRun(t, p, etcdBackend(t, server.Endpoint())).run(t)
	})
	if t.Failed() {
		return
	}
	if err := writePairs(os.Getenv(resultsVariable), "etcd", rows); err != nil {
		t.Error(err)
	}
}

// etcdPrefix is the default prefix of etcdstore.
const etcdPrefix = "lock/"

func etcdBackend(t *testing.T, server string) backend {
	t.Helper()
	cli, err := newEtcdClient(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	entries := func(ctx context.Context, name string) (entries []string, err error) {
		reply, err := cli.Get(ctx, etcdPrefix+name+"/", clientv3.WithPrefix())
		if err != nil {
			return nil, err
		}
		for _, kv := range reply.Kvs {
			entries = append(entries, fmt.Sprintf("%s with %s", kv.Key, kv.Value))
		}
		return entries, nil
	}
	return backend{server: server, open: func(*testing.T) driver.Store { return etcdstore.New(cli) }, entries: entries}
}

func newEtcdClient(server string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{server}, DialTimeout: patience, Logger: zap.NewNop()})
}

func newEtcdStore(server string) (driver.Store, error) {
	cli, err := newEtcdClient(server)
	if err != nil {
		return nil, err
	}
	return etcdstore.New(cli), nil
}

// acquireEtcd acquires a lock of the package concurrency.
func (p process) acquireEtcd(ctx context.Context) error {
	cli, err := newEtcdClient(p.server)
	if err != nil {
		return err
	}
	s, err := concurrency.NewSession(cli, concurrency.WithTTL(int(p.ttl.Seconds())))
	if err != nil {
		return err
	}
	if p.part == "concurrency.Election" {
		return concurrency.NewElection(s, etcdPrefix+p.name).Campaign(ctx, "victim")
	}
	return concurrency.NewMutex(s, etcdPrefix+p.name).Lock(ctx)
}

// etcdSession returns a worker's session: two workers with the same session do not exclude each other.
func etcdSession(t *testing.T, server string) *concurrency.Session {
	t.Helper()
	cli, err := newEtcdClient(server)
	if err != nil {
		t.Fatal(err)
	}
	s, err := concurrency.NewSession(cli, concurrency.WithTTL(int(workerTTL.Seconds())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(s.Close(), cli.Close()) })
	return s
}

func concurrencyMutex(r *pairRun, t *testing.T) turn {
	t.Helper()
	s := etcdSession(t, r.server)
	return func(ctx context.Context) error {
		m := concurrency.NewMutex(s, etcdPrefix+r.name)
		if err := m.Lock(ctx); err != nil {
			return fmt.Errorf("theirs: %w", err)
		}
		return errors.Join(r.enter("theirs", exclusive, 0), m.Unlock(context.WithoutCancel(ctx)))
	}
}

func concurrencyElection(r *pairRun, t *testing.T) turn {
	t.Helper()
	s := etcdSession(t, r.server)
	return func(ctx context.Context) error {
		e := concurrency.NewElection(s, etcdPrefix+r.name)
		if err := e.Campaign(ctx, "a candidate"); err != nil {
			return fmt.Errorf("theirs: %w", err)
		}
		return errors.Join(r.enter("theirs", exclusive, 0), e.Resign(context.WithoutCancel(ctx)))
	}
}

// etcdctl lets etcdctl run a process that enters. A signal ends a waiting etcdctl.
func etcdctl(r *pairRun, t *testing.T) turn {
	t.Helper()
	if _, ok := etcdtest.Ctl(); !ok {
		t.Fatal("etcdctl is not installed")
	}
	return func(ctx context.Context) error {
		cmd := etcdctlCommand(r.process(1, fmt.Sprint("turn", rand.N(1<<62)), pairWork, workerTTL))
		if err := cmd.Start(); err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
		defer stop()
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("etcdctl: %w", err)
		}
		return nil
	}
}

// etcdctlCommand returns an etcdctl that holds the lock while a process visits.
func etcdctlCommand(p process) *exec.Cmd {
	ctl, _ := etcdtest.Ctl()
	return p.command(ctl, "--endpoints="+p.server, "lock", fmt.Sprintf("--ttl=%.0f", p.ttl.Seconds()), etcdPrefix+p.name)
}
