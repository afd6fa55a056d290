//go:build linux

package goredisstore_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/internal/test/redistest"
)

// acquisition records how a worker acquired and released the lock.
type acquisition struct {
	Called time.Duration // before Lock
	Joined time.Duration // when it was queued, or zero
	Enter  time.Duration // after Lock
	Exit   time.Duration // before Unlock
	Fence  uint64
	Token  string
	Worker int
	Err    string
}

// loadChild runs workers that lock the job. All start when the child receives a command. It reports
// "acquisitions JSON".
func loadChild(o childConfig, commands <-chan string) {
	locks := openInChild(o, dibs.Hooks{})
	emit("ready")
	if _, ok := <-commands; !ok {
		return
	}
	begin := mono()
	acquisitions := make([][]acquisition, o.Workers)
	var workers sync.WaitGroup
	for i := range o.Workers {
		workers.Go(func() {
			for {
				acquisitions[i] = append(acquisitions[i], acquireOnce(locks, i, o.Work))
				if mono()-begin >= o.For {
					return
				}
			}
		})
	}
	workers.Wait()
	text, err := json.Marshal(slices.Concat(acquisitions...))
	if err != nil {
		emit("broken %v", err)
		return
	}
	emit("acquisitions %s", text)
	<-commands
}

func acquireOnce(locks *dibs.Client, worker int, work time.Duration) acquisition {
	ctx, cancel := context.WithTimeout(context.Background(), generous)
	defer cancel()
	v := acquisition{Worker: worker, Called: mono()}
	hooks := dibs.Hooks{Queued: func(context.Context, dibs.Queued) { v.Joined = mono() }}
	l, err := locks.Mutex(job).Lock(ctx, dibs.Observe(hooks))
	v.Enter = mono()
	if err != nil {
		v.Err = err.Error()
		return v
	}
	v.Fence, v.Token = l.Fence(), string(l.Token())
	time.Sleep(work)
	v.Exit = mono()
	if err := l.Unlock(); err != nil {
		v.Err = err.Error()
	}
	return v
}

// runChildren starts processes with role load, starts their workers, calls then, and returns each
// process's acquisitions.
func (b *fixture) runChildren(processes int, o childConfig, then func()) [][]acquisition {
	b.t.Helper()
	o.Role = "load"
	children := make([]*child, processes)
	for i := range children {
		children[i] = b.spawn(o)
	}
	for _, c := range children {
		c.send("go")
	}
	then()
	acquisitions := make([][]acquisition, processes)
	for i, c := range children {
		text := strings.Join(c.expect("acquisitions"), " ")
		if err := json.Unmarshal([]byte(text), &acquisitions[i]); err != nil {
			b.t.Fatal(err)
		}
	}
	return acquisitions
}

// checkServed checks that all acquisitions succeeded without overlaps, and that fences grow. It
// returns the acquisitions in the order of service.
func (b *fixture) checkServed(groups [][]acquisition) []acquisition {
	b.t.Helper()
	all := slices.Concat(groups...)
	failed := 0
	for _, v := range all {
		if v.Err != "" {
			if failed++; failed <= 3 {
				b.t.Errorf("failed: %s", v.Err)
			}
		}
	}
	slices.SortFunc(all, func(x, y acquisition) int { return cmp.Compare(x.Enter, y.Enter) })
	overlaps, disorder := 0, 0
	for i := 1; i < len(all); i++ {
		if all[i].Enter < all[i-1].Exit {
			overlaps++
		}
		if all[i].Fence <= all[i-1].Fence {
			disorder++
		}
	}
	b.t.Logf("FIGURE %d acquisitions: %d failed, %d overlaps, %d fences that did not grow", len(all), failed, overlaps, disorder)
	if failed+overlaps+disorder > 0 {
		b.t.Errorf("%d failed, %d overlaps, %d fences that did not grow: want none", failed, overlaps, disorder)
	}
	return all
}

// overtaken counts the acquisitions served before another that had certainly been queued before
// they called Lock, in any process. pairs is the number of pairs with a known order: how much the
// result says.
func overtaken(inOrder []acquisition) (overtakes, pairs int) {
	const never = time.Duration(1<<63 - 1)
	earliest := never // when the first acquisition served later was queued
	for i := len(inOrder) - 1; i >= 0; i-- {
		v := inOrder[i]
		if earliest < v.Called {
			overtakes++
		}
		if v.Joined > 0 {
			earliest = min(earliest, v.Joined)
		}
	}
	calls := make([]time.Duration, len(inOrder))
	for i, v := range inOrder {
		calls[i] = v.Called
	}
	slices.Sort(calls)
	for _, v := range inOrder {
		if v.Joined > 0 {
			at, _ := slices.BinarySearch(calls, v.Joined)
			pairs += len(calls) - at
		}
	}
	return overtakes, pairs
}

// A thousand callers in four processes lock a free name at the same time. All are served in
// order, with at most two scripts each. The duration is logged; the benchmark has a limit for it.
// Not parallel, because heartbeats depend on time.
func TestThousandArrive(t *testing.T) {
	const work = 2 * time.Millisecond
	b := setUpQuiet(t)
	var before int64
	groups := b.runChildren(4, childConfig{TTL: 5 * time.Second, Workers: 250, Work: work}, func() { before = b.scripts() })
	scripts := b.scripts() - before
	all := b.checkServed(groups)
	first, last := all[0].Called, time.Duration(0)
	for _, v := range all {
		first, last = min(first, v.Called), max(last, v.Exit)
	}
	t.Logf("FIGURE 1,000 arrive: %d served in %v, %.2f scripts per entry (limit 2; coalesced requests count as one)",
		len(all), round(last-first), float64(scripts)/float64(len(all)))
	t.Logf("the commands: %s", b.perCommand())
	if len(all) != 1000 || scripts > 2*int64(len(all)) {
		t.Errorf("%d served with %d scripts, want 1000 with at most 2 each: acquire and release", len(all), scripts)
	}
	n, pairs := overtaken(all)
	t.Logf("FIGURE 1,000 arrive: %d overtook a waiter that was queued before their call (limit 0; %d pairs known)", n, pairs)
	if n != 0 {
		t.Errorf("%d overtook a waiter", n)
	}
}

// A thousand waiters in four processes should be served exactly in the order of the server's queue.
func TestThousandInOrder(t *testing.T) {
	const workers = 1000
	b := setUpQuiet(t)
	locks := b.newClient(b.server.Addr())
	l := b.lock(locks, job)
	var order []string
	groups := b.runChildren(4, childConfig{TTL: 5 * time.Second, Workers: workers / 4, Work: time.Millisecond}, func() {
		queue := "{" + key + "}:dibs:queue"
		b.eventually("all are queued", func() bool { return b.call("ZCARD", queue) == int64(workers) })
		entries, _ := b.call("ZRANGE", queue, "0", "-1").([]any)
		for _, entry := range entries {
			order = append(order, strings.SplitN(fmt.Sprint(entry), " ", 5)[4])
		}
		b.unlock(l)
	})
	all := b.checkServed(groups)
	if len(all) != workers || len(order) != workers {
		t.Fatalf("%d of %d served", len(all), len(order))
	}
	wrong := 0
	for i, v := range all {
		if v.Token != order[i] {
			wrong++
		}
	}
	n, pairs := overtaken(all)
	t.Logf("FIGURE 1,000 in order: %d served out of order, %d overtook a waiter (limits 0; %d pairs known)", wrong, n, pairs)
	if wrong+n != 0 {
		t.Errorf("%d served out of order, %d overtook a waiter", wrong, n)
	}
	b.wantNoKeys()
}

// Workers that lock again at once must be served equally often.
func TestGreedy(t *testing.T) {
	t.Parallel()
	b := setUpQuiet(t)
	groups := b.runChildren(2, childConfig{TTL: ttl, Workers: 4, Work: time.Millisecond, For: 5 * time.Second}, func() {})
	all := b.checkServed(groups)
	var counts []int
	for _, acquisitions := range groups {
		perWorker := make([]int, 4)
		for _, v := range acquisitions {
			perWorker[v.Worker]++
		}
		counts = append(counts, perWorker...)
	}
	slices.Sort(counts)
	least, most := counts[0], counts[len(counts)-1]
	var longest time.Duration
	for _, v := range all {
		longest = max(longest, v.Enter-v.Called)
	}
	t.Logf("FIGURE greedy: %d to %d entries per worker, ratio %.2f (limit 1.5), longest wait %v", least, most, float64(most)/float64(least), round(longest))
	if 2*most > 3*least {
		t.Errorf("entries per worker: %v, want at most 1.5 times the least", counts)
	}
	b.wantNoKeys()
}

// setUpQuiet is setUp without a running control, whose commands would count.
func setUpQuiet(t *testing.T) *fixture {
	t.Helper()
	server := redistest.Start(t)
	direct := redistest.Dial(server.Addr())
	t.Cleanup(direct.Close)
	return &fixture{t: t, server: server, direct: direct, control: control{new(drill.Machine)}}
}

// perCommand returns how often each command was called since the server started.
func (b *fixture) perCommand() string {
	b.t.Helper()
	stats, _ := b.server.MustCmd(b.t, "INFO", "commandstats").(string)
	var counts []string
	for line := range strings.Lines(stats) {
		if name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls="); ok {
			n, _, _ := strings.Cut(rest, ",")
			counts = append(counts, name+" "+n)
		}
	}
	return strings.Join(counts, ", ")
}

// scripts returns how many scripts were executed since the server started.
func (b *fixture) scripts() int64 {
	b.t.Helper()
	stats, _ := b.server.MustCmd(b.t, "INFO", "commandstats").(string)
	_, rest, _ := strings.Cut(stats, "cmdstat_evalsha:calls=")
	n, _, _ := strings.Cut(rest, ",")
	calls, _ := strconv.ParseInt(n, 10, 64) // there is no line before the first call
	return calls
}
