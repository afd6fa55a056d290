//go:build unix

package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/etcdstore"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// processVariable contains the arguments of a process of this test: a part, the server, the lock's
// name, the judge, the side, the ID, the time inside, and the TTL.
const processVariable = "DIBS_INTEROP_PROCESS"

// TestMain also is the main function of processes that hold a lock until they are killed.
func TestMain(m *testing.M) {
	p, ok := processOf(os.Getenv(processVariable))
	if !ok {
		os.Exit(m.Run())
	}
	if err := p.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A process acquires a lock once. For the part visit, etcdctl holds the lock.
type process struct {
	part, server, name, judge, side, id string

	inside, ttl time.Duration
}

func processOf(text string) (p process, ok bool) {
	words := strings.Fields(text)
	if len(words) != 8 {
		return process{}, false
	}
	inside, err := time.ParseDuration(words[6])
	ttl, err2 := time.ParseDuration(words[7])
	return process{words[0], words[1], words[2], words[3], words[4], words[5], inside, ttl}, err == nil && err2 == nil
}

func (p process) String() string {
	return strings.Join([]string{p.part, p.server, p.name, p.judge, p.side, p.id, p.inside.String(), p.ttl.String()}, " ")
}

// command returns the process's command, in its own process group.
func (p process) command(before ...string) *exec.Cmd {
	args := append(before, os.Args[0])
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), processVariable+"="+p.String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// killGroup kills a process and those that it started.
func killGroup(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait()
}

func (p process) run(ctx context.Context) error {
	if p.part == "visit" {
		return visit(p.judge, p.side, p.id, p.inside)
	}
	cli, err := newEtcdClient(p.server)
	if err != nil {
		return err
	}
	defer cli.Close()
	if err := p.acquire(ctx, cli); err != nil {
		return err
	}
	return visit(p.judge, p.side, p.id, p.inside)
}

// acquire acquires the lock as the part does.
func (p process) acquire(ctx context.Context, cli *clientv3.Client) error {
	locks := dibs.New(etcdstore.New(cli), dibs.TTL(p.ttl), dibs.Timeout(patience))
	switch p.part {
	case "dibs-mutex":
		_, err := locks.Mutex(p.name).Lock(ctx)
		return err
	case "dibs-election":
		_, err := locks.Election(p.name).Campaign(ctx)
		return err
	}
	s, err := concurrency.NewSession(cli, concurrency.WithTTL(int(p.ttl.Seconds())))
	if err != nil {
		return err
	}
	switch p.part {
	case "mutex":
		return concurrency.NewMutex(s, etcdPrefix+p.name).Lock(ctx)
	case "election":
		return concurrency.NewElection(s, etcdPrefix+p.name).Campaign(ctx, "victim")
	}
	return fmt.Errorf("no part %q", p.part)
}

// etcdPrefix is the default prefix of etcdstore.
const etcdPrefix = "lock/"

func newEtcdClient(server string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{server}, DialTimeout: patience, Logger: zap.NewNop()})
}
