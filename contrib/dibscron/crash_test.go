package dibscron_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibscron"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/internal/test/childtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"
)

func TestMain(m *testing.M) {
	childtest.Main(m, map[string]childtest.Role{"cron": cronChild, "modes": modesChild})
}

const (
	crashTTL      = time.Second
	crashInterval = 2 * time.Second
	crashMinHold  = time.Second
)

// printer is a cron.Logger that prints a Locker's messages, a line each.
type printer struct{ out io.Writer }

func (p printer) Info(message string, _ ...any) {
	if message == "job skipped" {
		fmt.Fprintln(p.out, "busy")
	}
}

func (p printer) Error(err error, message string, _ ...any) { fmt.Fprintln(p.out, message, err) }

// cronChild runs a job every two seconds. Its arguments are the server's address, and the runs'
// behaviour, "hangs" or "returns". It prints "busy", and "runs TIME FENCE" with the wall clock in
// nanoseconds.
func cronChild(out io.Writer, args []string) error {
	logger := printer{out}
	locks := dibs.New(goredisstore.New(redis.NewClient(&redis.Options{Addr: args[0]})), dibs.TTL(crashTTL))
	locker := dibscron.NewLocker(context.Background(), locks, logger)
	schedule := cron.New(cron.WithSeconds())
	_, err := schedule.AddJob("*/2 * * * * *", locker.Job("report", crashMinHold, func(ctx context.Context) error {
		fmt.Fprintln(out, "runs", time.Now().UnixNano(), carried.Fence(ctx))
		if args[1] == "hangs" {
			<-ctx.Done()
		}
		return nil
	}))
	if err != nil {
		return err
	}
	schedule.Run() // until it is killed
	return nil
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

// A process is killed in the middle of a run. No other process runs the job before the TTL ends.
// The survivor runs it when it is next due.
func TestCrash(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks := open(t, goredisstore.New(rdb), dibs.Timeout(10*time.Second))
	victim := childtest.Start(t, "cron", server.Addr(), "hangs")
	_, first := wantRun(t, victim)
	survivor := childtest.Start(t, "cron", server.Addr(), "returns")
	if line := survivor.Line(); line != "busy" {
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

// While the store is down, no instance runs the job. When it is back, the next due run happens.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	child := childtest.Start(t, "cron", server.Addr(), "returns")
	wantRun(t, child)
	server.Kill()
	for line := child.Line(); !strings.HasPrefix(line, "job did not run"); line = child.Line() {
		if !strings.HasPrefix(line, "job failed") && !strings.HasPrefix(line, "runs") { // from a run during the outage
			t.Errorf("line %q", line)
		}
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	for line := child.Line(); !strings.HasPrefix(line, "runs"); line = child.Line() {
		if !strings.HasPrefix(line, "job did not run") {
			t.Errorf("line %q, want a run", line)
		}
	}
}
