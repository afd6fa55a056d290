//go:build unix

package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/etcdstore"
	"github.com/dibslock/dibs/internal/test/etcdtest"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// An etcdPair is dibs beside one of etcd's own tools, on a lock's name.
type etcdPair struct {
	tool   string
	name   string
	dibs   func(r *etcdRun, t *testing.T) turn
	theirs func(r *etcdRun, t *testing.T) turn
	parts  [2]string // of the victims: dibs, theirs
}

func etcdPairs() []etcdPair {
	return []etcdPair{
		{"concurrency.Mutex", "order:mutex", (*etcdRun).dibsMutex, (*etcdRun).concurrencyMutex, [2]string{"dibs-mutex", "mutex"}},
		{"concurrency.Election", "order:election", (*etcdRun).dibsElection, (*etcdRun).concurrencyElection, [2]string{"dibs-election", "election"}},
		{"etcdctl lock", "order:ctl", (*etcdRun).dibsMutex, (*etcdRun).etcdctl, [2]string{"dibs-mutex", "visit"}},
	}
}

// TestEtcd checks that dibs and etcd's own tools exclude each other, also while processes of both
// sides are killed. It takes 30 s with DIBS_INTEROP, and otherwise a few seconds.
func TestEtcd(t *testing.T) {
	t.Parallel()
	server := etcdtest.NewServer(t)
	rows := make([]etcdRow, len(etcdPairs()))
	var group sync.WaitGroup // not t.Parallel: its limit is the number of CPUs, but most runs only wait
	for i, p := range etcdPairs() {
		group.Go(func() {
			t.Run(p.tool, func(t *testing.T) { rows[i] = newEtcdRun(t, p, server.Endpoint()).run(t) })
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	if err := writeEtcdResults(os.Getenv(resultsVariable), rows); err != nil {
		t.Error(err)
	}
}

const (
	etcdWorkers = 3 // of each side
	etcdWork    = 3 * time.Millisecond

	longestShort = 3 * time.Second
	workerTTL    = time.Minute
	victimTTL    = 4 * time.Second
)

// A turn acquires the lock, enters, works, leaves, and releases the lock.
type turn func(ctx context.Context) error

// An etcdRun is a run of a pair.
type etcdRun struct {
	etcdPair
	server string
	cli    *clientv3.Client
	judge  *judge
	long   time.Duration
	locks  *dibs.Client
	kills  [2]int           // dibs, theirs
	block  [2]time.Duration // the longest time for which a killed holder blocked the name
}

func newEtcdRun(t *testing.T, p etcdPair, server string) *etcdRun {
	t.Helper()
	cli, err := newEtcdClient(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	r := &etcdRun{etcdPair: p, server: server, cli: cli, judge: newJudge(t), long: longestShort}
	if os.Getenv(selectVariable) != "" {
		r.long = 30 * time.Second
	}
	r.locks = dibs.New(etcdstore.New(cli), dibs.Timeout(patience))
	return r
}

func (r *etcdRun) run(t *testing.T) etcdRow {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group, first sync.WaitGroup
	for range etcdWorkers {
		for _, begin := range []func(*etcdRun, *testing.T) turn{r.dibs, r.theirs} {
			turn := begin(r, t)
			first.Add(1)
			group.Go(func() { repeat(ctx, t, turn, sync.OnceFunc(first.Done)) })
		}
	}
	r.kill(t)
	wantFirstTurns(t, &first)
	cancel()
	group.Wait()
	r.check(t)
	if err := r.locks.Close(); err != nil {
		t.Errorf("dibs: close: %v", err)
	}
	r.wantNothingLeft(t)
	row := etcdRow{tool: r.tool, long: r.long, turns: [2]int{r.judge.turns["dibs"], r.judge.turns["theirs"]}, kills: r.kills, block: r.block}
	t.Logf("%+v", row)
	return row
}

// repeat takes turns until ctx ends. It calls first after its first turn, or when it ends.
func repeat(ctx context.Context, t *testing.T, take turn, first func()) {
	defer first()
	for ctx.Err() == nil {
		if err := take(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
			return
		}
		first()
	}
}

// wantFirstTurns checks that each worker gets a turn while the others continue: the queue is in
// order of arrival.
func wantFirstTurns(t *testing.T, first *sync.WaitGroup) {
	t.Helper()
	all := make(chan struct{})
	go func() {
		first.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-time.After(patience):
		t.Errorf("a worker still waits for its first turn after %v", patience)
	}
}

func (r *etcdRun) check(t *testing.T) {
	t.Helper()
	j := r.judge
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.overlaps > 0 {
		t.Errorf("%d turns began while another worker was inside", j.overlaps)
	}
	if j.inside != 0 {
		t.Errorf("%d workers are still inside", j.inside)
	}
}

// wantNothingLeft waits until the queue is empty. A killed process's entry ends with its session.
func (r *etcdRun) wantNothingLeft(t *testing.T) {
	t.Helper()
	const limit = patience
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		reply, err := r.cli.Get(t.Context(), etcdPrefix+r.name+"/", clientv3.WithPrefix())
		switch {
		case err != nil:
			t.Fatal(err)
		case reply.Count == 0:
			return
		case time.Now().After(end):
			t.Fatalf("after %v there are still %d keys: %s with %s", limit, reply.Count, reply.Kvs[0].Key, reply.Kvs[0].Value)
		}
	}
}

// enter is the work of a turn.
func (r *etcdRun) enter(side string, fence uint64) error {
	err := r.judge.enter(side, fence)
	time.Sleep(etcdWork)
	r.judge.leave()
	return err
}

func (r *etcdRun) dibsMutex(*testing.T) turn {
	return func(ctx context.Context) error { return r.dibsTurn(r.locks.Mutex(r.name).Lock(ctx)) }
}

func (r *etcdRun) dibsElection(*testing.T) turn {
	return func(ctx context.Context) error { return r.dibsTurn(r.locks.Election(r.name).Campaign(ctx)) }
}

func (r *etcdRun) dibsTurn(lease *dibs.Lease, err error) error {
	if err != nil {
		return fmt.Errorf("dibs: %w", err)
	}
	return errors.Join(r.enter("dibs", lease.Fence()), lease.Unlock())
}

// session returns a worker's session: two workers with the same session do not exclude each other.
func (r *etcdRun) session(t *testing.T) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(r.cli, concurrency.WithTTL(int(workerTTL.Seconds())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (r *etcdRun) concurrencyMutex(t *testing.T) turn {
	s := r.session(t)
	return func(ctx context.Context) error {
		m := concurrency.NewMutex(s, etcdPrefix+r.name)
		if err := m.Lock(ctx); err != nil {
			return fmt.Errorf("theirs: %w", err)
		}
		return errors.Join(r.enter("theirs", 0), m.Unlock(context.WithoutCancel(ctx)))
	}
}

func (r *etcdRun) concurrencyElection(t *testing.T) turn {
	s := r.session(t)
	return func(ctx context.Context) error {
		e := concurrency.NewElection(s, etcdPrefix+r.name)
		if err := e.Campaign(ctx, "a candidate"); err != nil {
			return fmt.Errorf("theirs: %w", err)
		}
		return errors.Join(r.enter("theirs", 0), e.Resign(context.WithoutCancel(ctx)))
	}
}

// etcdctl lets etcdctl run a process that enters. A signal ends a waiting etcdctl.
func (r *etcdRun) etcdctl(t *testing.T) turn {
	t.Helper()
	if _, ok := etcdtest.Ctl(); !ok {
		t.Fatal("etcdctl is not installed")
	}
	return func(ctx context.Context) error {
		cmd := r.process("theirs", "visit", rand.N(1<<62), etcdWork, workerTTL)
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

// process returns a process that holds the lock. The part visit is the command of an etcdctl.
func (r *etcdRun) process(side, part string, id int, inside, ttl time.Duration) *exec.Cmd {
	p := process{part: part, server: r.server, name: r.name, judge: r.judge.listener.Addr().String(), side: side, id: fmt.Sprint(id), inside: inside, ttl: ttl}
	if part != "visit" {
		return p.command()
	}
	ctl, _ := etcdtest.Ctl()
	return p.command(ctl, "--endpoints="+r.server, "lock", fmt.Sprintf("--ttl=%.0f", ttl.Seconds()), etcdPrefix+r.name)
}

// kill kills processes until the time has passed: in turn, a holder on each side, and then a process
// on each side at any moment, when most wait.
func (r *etcdRun) kill(t *testing.T) {
	least, calm := 2, time.Second
	if r.isLong() {
		least, calm = 4, 2*time.Second
	}
	for begin, i := time.Now(), 0; i < least || time.Since(begin) < r.long; i++ {
		time.Sleep(calm) // the others work
		side := i % 2
		if err := r.killOne(side, i, i%4 < 2); err != nil {
			t.Errorf("victim %s: %v", r.parts[side], err)
			return
		}
		r.kills[side]++
	}
}

func (r *etcdRun) isLong() bool { return r.long > longestShort }

// holding is how long a victim holds the lock. In a long run some victims end before their first
// renewal: they block the lock for up to 10 s.
func (r *etcdRun) holding() time.Duration {
	if r.isLong() {
		return rand.N(time.Second)
	}
	return time.Second
}

func (r *etcdRun) killOne(side, id int, holds bool) error {
	const limit = patience
	cmd := r.process([]string{"dibs", "theirs"}[side], r.parts[side], id, time.Hour, victimTTL)
	var output strings.Builder
	cmd.Stderr = &output
	if err := cmd.Start(); err != nil {
		return err
	}
	defer killGroup(cmd)
	if !holds {
		time.Sleep(rand.N(500 * time.Millisecond))
		return nil
	}
	select {
	case <-r.judge.victim(fmt.Sprint(id)):
	case <-time.After(limit):
		return fmt.Errorf("it did not hold the lock after %v: %s", limit, output.String())
	}
	time.Sleep(r.holding())
	next := r.judge.nextTurn()
	killed := time.Now()
	killGroup(cmd)
	select {
	case <-next:
	case <-time.After(limit):
		return fmt.Errorf("nobody held the lock %v after its end", limit)
	}
	r.block[side] = max(r.block[side], time.Since(killed))
	return nil
}
