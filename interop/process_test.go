//go:build unix

package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// processVariable contains a process of this test, as text.
const processVariable = "DIBS_INTEROP_PROCESS"

// TestMain also is the main function of processes that hold a lock until they are killed.
func TestMain(m *testing.M) {
	text, ok := os.LookupEnv(processVariable)
	if !ok {
		os.Exit(m.Run())
	}
	p, err := parseProcess(text)
	if err == nil {
		err = p.run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A process acquires a lock once. For the part visit, the program that started it holds the lock.
type process struct {
	part        string // what it acquires
	store       string // where
	server      string
	name        string
	judge       string // its address
	side        string
	id          string
	mode        mode
	inside, ttl time.Duration
}

func parseProcess(text string) (p process, err error) {
	_, err = fmt.Sscan(text, &p.part, &p.store, &p.server, &p.name, &p.judge, &p.side, &p.id, &p.mode, &p.inside, &p.ttl)
	return p, err
}

func (p process) String() string {
	return fmt.Sprintln(p.part, p.store, p.server, p.name, p.judge, p.side, p.id, p.mode, int64(p.inside), int64(p.ttl))
}

// command returns the process's command, in its own process group.
func (p process) command(before ...string) *exec.Cmd {
	cmd := groupCommand(append(before, os.Args[0]))
	cmd.Env = append(os.Environ(), processVariable+"="+p.String())
	return cmd
}

// groupCommand returns a command in its own process group.
func groupCommand(args []string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// killGroup kills a process and those that it started.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

func (p process) run(ctx context.Context) error {
	if err := p.acquire(ctx); err != nil {
		return err
	}
	return p.visit()
}

// acquire acquires the lock as the part does. The end of the process closes the connection.
func (p process) acquire(ctx context.Context) error {
	switch p.part {
	case "visit":
		return nil
	case "dibs.Mutex", "dibs.Election", "dibs.RWMutex":
		return p.acquireDibs(ctx)
	case "concurrency.Mutex", "concurrency.Election":
		return p.acquireEtcd(ctx)
	case "zk.Lock":
		return p.acquireZooKeeper()
	}
	return fmt.Errorf("no part %q", p.part)
}

func (p process) acquireDibs(ctx context.Context) error {
	store, err := p.openStore()
	if err != nil {
		return err
	}
	locks := dibs.New(store, dibs.TTL(p.ttl), dibs.Timeout(patience))
	switch p.part {
	case "dibs.Election":
		_, err = locks.Election(p.name).Campaign(ctx)
	case "dibs.RWMutex":
		_, err = lockMode(ctx, locks.RWMutex(p.name), p.mode)
	default:
		_, err = locks.Mutex(p.name).Lock(ctx)
	}
	return err
}

// lockMode acquires a read-write mutex.
func lockMode(ctx context.Context, m *dibs.RWMutex, how mode) (*dibs.Lease, error) {
	if how == shared {
		return m.Reader().Lock(ctx)
	}
	return m.Writer().Lock(ctx)
}

func (p process) openStore() (driver.Store, error) {
	switch p.store {
	case "etcd":
		return newEtcdStore(p.server)
	case "curator", "kazoo":
		return newZooKeeperStore(p.store, p.server), nil
	}
	return nil, fmt.Errorf("no store %q", p.store)
}
