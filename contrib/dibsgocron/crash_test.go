package dibsgocron_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgocron"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/internal/test/childtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Times printed by processes are wall-clock times, in nanoseconds: the processes share a machine.

func TestMain(m *testing.M) {
	childtest.Main(m, map[string]childtest.Role{"locker": lockerChild, "elector": electorChild, "modes": modesChild})
}

const (
	crashTTL      = 3 * time.Second // a busy machine renews it in time
	crashInterval = 4 * time.Second
	crashMinHold  = time.Second
)

func childClient(addr string) *dibs.Client {
	return dibs.New(goredisstore.New(redis.NewClient(&redis.Options{Addr: addr})), dibs.TTL(crashTTL))
}

// lockerChild runs a job every four seconds. Its arguments are the server's address, and the runs'
// behaviour, "hangs" or "returns". It prints "runs TIME FENCE" and "busy".
func lockerChild(out io.Writer, args []string) error {
	locker := dibsgocron.NewLocker(childClient(args[0]), crashMinHold)
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		return err
	}
	_, err = s.NewJob(gocron.CronJob("*/4 * * * * *", true), locker.Task(func(ctx context.Context) error {
		fmt.Fprintln(out, "runs", time.Now().UnixNano(), carried.Fence(ctx))
		if args[1] == "hangs" {
			<-ctx.Done()
		}
		return nil
	}), gocron.WithName("report"), gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
		if errors.Is(err, dibs.ErrBusy) {
			fmt.Fprintln(out, "busy")
			return
		}
		fmt.Fprintln(out, "failed", err)
	})))
	if err != nil {
		return err
	}
	s.Start()
	select {} // until it is killed
}

// wantRun reads lines "busy", if there are any, and then "runs TIME FENCE".
func wantRun(t *testing.T, c *childtest.Child) (at time.Time, fence uint64) {
	t.Helper()
	line := c.Line()
	for line == "busy" {
		line = c.Line()
	}
	var nanos int64
	if _, err := fmt.Sscanf(line, "runs %d %d", &nanos, &fence); err != nil {
		t.Fatalf("line %q, want a run: %v", line, err)
	}
	return time.Unix(0, nanos), fence
}

// A process is killed in the middle of a run. No other process runs the job before the TTL ends,
// and the survivor runs it when it is next due.
func TestLockerAfterACrash(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locks := open(t, redisStore(t, server.Addr()), dibs.Timeout(10*time.Second))
	victim := childtest.Start(t, "locker", server.Addr(), "hangs")
	_, first := wantRun(t, victim)
	survivor := childtest.Start(t, "locker", server.Addr(), "returns")
	if line := survivor.Line(); line != "busy" { // the lock is renewed beyond minHold and the TTL
		t.Fatalf("survivor: %q, want busy", line)
	}

	victim.Kill()
	killed := time.Now()
	state, err := locks.Inspect(t.Context(), "report")
	if err != nil || len(state.Holders) != 1 {
		t.Fatalf("state %+v, %v; want one holder", state, err)
	}
	remaining := state.Holders[0].Remaining // at some time since the kill
	free, freeAtLast := killed.Add(remaining), time.Now().Add(remaining)
	next := free.Truncate(crashInterval).Add(crashInterval)
	last := freeAtLast.Truncate(crashInterval).Add(crashInterval)

	ran, second := wantRun(t, survivor)
	if ran.Before(free) {
		t.Errorf("ran %v before the TTL had passed", free.Sub(ran))
	}
	if ran.Before(next) || !ran.Before(last.Add(crashInterval)) {
		t.Errorf("ran at %v, want the due time %v, or up to %v", ran, next, last)
	}
	if second <= first {
		t.Errorf("fence %d after %d, want a larger one", second, first)
	}
	again, _ := wantRun(t, survivor)
	if later := again.Truncate(crashInterval).Sub(ran.Truncate(crashInterval)); later != crashInterval {
		t.Errorf("the run after it is %v later, want %v", later, crashInterval)
	}
	t.Logf("name free %v after the crash, next run after %v, %v after its due time",
		free.Sub(killed), ran.Sub(killed), ran.Sub(next))
}

// electorChild campaigns, and calls IsLeader all the time. It prints "leads BEFORE AFTER" when a
// call returns nil, with the times around it. It prints "follows LAST" when a call returns an
// error, with the time before the last call that returned nil. Its arguments are the server's
// address, and the pause between two calls.
func electorChild(out io.Writer, args []string) error {
	elector := dibsgocron.NewElector(childClient(args[0]), "scheduler")
	leading := false
	var last time.Time
	pause, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	if pause == 0 {
		runtime.GOMAXPROCS(1) // the first call after a stop comes before any timer
	}
	for ; ; time.Sleep(pause) {
		before := time.Now()
		err := elector.IsLeader(context.Background())
		switch {
		case err == nil && !leading:
			fmt.Fprintln(out, "leads", before.UnixNano(), time.Now().UnixNano())
		case err != nil && leading:
			fmt.Fprintln(out, "follows", last.UnixNano())
		}
		leading = err == nil
		if leading {
			last = before
		}
	}
}

// wantLine reads a line with a word and times.
func wantLine(t *testing.T, c *childtest.Child, word string, times ...*time.Time) {
	t.Helper()
	nanos := make([]int64, len(times))
	targets := []any{new(string)}
	for i := range nanos {
		targets = append(targets, &nanos[i])
	}
	line := c.Line()
	if n, err := fmt.Sscan(line, targets...); err != nil || *targets[0].(*string) != word {
		t.Fatalf("line %q (%d words, %v), want %s", line, n, err, word)
	}
	for i := range nanos {
		*times[i] = time.Unix(0, nanos[i])
	}
}

// awaitWaiter polls until a candidate waits for the election.
func awaitWaiter(t *testing.T, locks *dibs.Client) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		state, err := locks.Inspect(t.Context(), "scheduler")
		if err == nil && state.Waiting == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("state %+v, %v; want a waiter", state, err)
		}
	}
}

// The survivor leads within the TTL after the leader was killed.
func TestElectorAfterACrash(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	leader := childtest.Start(t, "elector", server.Addr(), "1ms")
	var before, after time.Time
	wantLine(t, leader, "leads", &before, &after)
	survivor := childtest.Start(t, "elector", server.Addr(), "1ms")
	awaitWaiter(t, open(t, redisStore(t, server.Addr())))

	leader.Kill()
	killed := time.Now()
	wantLine(t, survivor, "leads", &before, &after)
	if took := after.Sub(killed); took > crashTTL+time.Second || took < crashTTL/3 {
		t.Errorf("leads %v after the crash, want from %v to %v", took, crashTTL/3, crashTTL+time.Second)
	}
	t.Logf("the survivor leads %v after the crash, with a TTL of %v", after.Sub(killed), crashTTL)
}

// A leader stopped for longer than its TTL must not be the leader right afterwards: IsLeader
// compares the clock.
func TestElectorAfterAPause(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	leader := childtest.Start(t, "elector", server.Addr(), "0s")
	var before, after, last time.Time
	wantLine(t, leader, "leads", &before, &after)
	survivor := childtest.Start(t, "elector", server.Addr(), "1ms")
	awaitWaiter(t, open(t, redisStore(t, server.Addr())))

	signal(t, leader, syscall.SIGSTOP)
	wantLine(t, survivor, "leads", &before, &after)
	signal(t, leader, syscall.SIGCONT)
	wantLine(t, leader, "follows", &last)
	if !last.Before(after) {
		t.Errorf("two leaders: the first one at %v, the second one from %v", last, after)
	}
}

func signal(t *testing.T, c *childtest.Child, s syscall.Signal) {
	t.Helper()
	if err := c.Process().Signal(s); err != nil {
		t.Fatal(err)
	}
}
