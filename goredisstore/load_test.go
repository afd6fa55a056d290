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
	"github.com/dibslock/dibs/internal/drill"
	"github.com/dibslock/dibs/internal/redistest"
)

// A acquisition is one stay in the lock, as its worker saw it.
type acquisition struct {
	Called time.Duration // before Lock
	Joined time.Duration // when it was told to wait, or zero
	Enter  time.Duration // after Lock
	Exit   time.Duration // before Unlock
	Fence  uint64
	Token  string
	Worker int
	Err    string
}

// crowd is a child whose workers take the lock, all from the same moment on.
func loadChild(o childConfig, commands <-chan string) {
	locks := openInChild(o, dibs.Hooks{})
	emit("ready")
	if _, ok := <-commands; !ok {
		return
	}
	begin := mono()
	visits := make([][]acquisition, o.Workers)
	var workers sync.WaitGroup
	for i := range o.Workers {
		workers.Go(func() {
			for {
				visits[i] = append(visits[i], acquireOnce(locks, i, o.Work))
				if mono()-begin >= o.For {
					return
				}
			}
		})
	}
	workers.Wait()
	text, err := json.Marshal(slices.Concat(visits...))
	if err != nil {
		emit("broken %v", err)
		return
	}
	emit("visits %s", text)
	<-commands
}

func acquireOnce(locks *dibs.Client, worker int, work time.Duration) acquisition {
	ctx, cancel := context.WithTimeout(context.Background(), generous)
	defer cancel()
	v := acquisition{Worker: worker, Called: mono()}
	hooks := dibs.Hooks{Waiting: func(dibs.Waiting) { v.Joined = mono() }}
	l, err := locks.Mutex(job).Lock(ctx, dibs.Observe(hooks))
	v.Enter = mono()
	if err != nil {
		v.Err = err.Error()
		return v
	}
	v.Fence, v.Token = l.Fence(), l.Token()
	time.Sleep(work)
	v.Exit = mono()
	if err := l.Unlock(); err != nil {
		v.Err = err.Error()
	}
	return v
}

// gather starts children, lets them go at once, calls then, and returns the visits
// of each.
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
	visits := make([][]acquisition, processes)
	for i, c := range children {
		text := strings.Join(c.expect("visits"), " ")
		if err := json.Unmarshal([]byte(text), &visits[i]); err != nil {
			b.t.Fatal(err)
		}
	}
	return visits
}

// served checks what must hold for all visits, and returns them in the order of
// service.
func (b *fixture) checkServed(groups [][]acquisition) []acquisition {
	b.t.Helper()
	all := slices.Concat(groups...)
	failed := 0
	for _, v := range all {
		if v.Err != "" {
			if failed++; failed <= 3 {
				b.t.Errorf("not served: %s", v.Err)
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
	b.t.Logf("FIGURE %d visits: %d failed, %d overlaps, %d fences that did not grow", len(all), failed, overlaps, disorder)
	if failed+overlaps+disorder > 0 {
		b.t.Errorf("%d failed, %d overlaps, %d fences that did not grow: want none", failed, overlaps, disorder)
	}
	return all
}

// barged counts the visits that were served before one that, provably, had joined
// the queue before they called Lock: whichever process it was in.
func overtaken(inOrder []acquisition) (barged, proofs int) {
	const never = time.Duration(1<<63 - 1)
	earliest := never // of those served later, when the first of them joined
	for i := len(inOrder) - 1; i >= 0; i-- {
		v := inOrder[i]
		if earliest < v.Called {
			barged++
		}
		if v.Joined > 0 {
			earliest = min(earliest, v.Joined)
		}
	}
	// How much this says: pairs of which the order is known.
	calls := make([]time.Duration, len(inOrder))
	for i, v := range inOrder {
		calls[i] = v.Called
	}
	slices.Sort(calls)
	for _, v := range inOrder {
		if v.Joined > 0 {
			at, _ := slices.BinarySearch(calls, v.Joined)
			proofs += len(calls) - at
		}
	}
	return barged, proofs
}

// A thousand arrive at once, from four processes, at a name that is free: all are
// served in turn, and nobody asks in vain. How long it takes is logged, and judged by
// the benchmark. Not parallel: heartbeats go by the clock.
func TestThousandArrive(t *testing.T) {
	const work = 2 * time.Millisecond
	server := setUpQuiet(t)
	var before int64
	groups := server.runChildren(4, childConfig{TTL: 5 * time.Second, Workers: 250, Work: work}, func() { before = server.scripts() })
	scripts := server.scripts() - before
	all := server.checkServed(groups)
	first, last := all[0].Called, time.Duration(0)
	for _, v := range all {
		first, last = min(first, v.Called), max(last, v.Exit)
	}
	t.Logf("FIGURE 1,000 arrive: %d served in %v, %.2f scripts per entry (limit 2; claims that come together are one)",
		len(all), round(last-first), float64(scripts)/float64(len(all)))
	t.Logf("the commands: %s", server.perCommand())
	if len(all) != 1000 || scripts > 2*int64(len(all)) {
		t.Errorf("%d served with %d scripts, want 1000 with at most 2 each: to join, and to release", len(all), scripts)
	}
	n, proofs := overtaken(all)
	t.Logf("FIGURE 1,000 arrive: %d served before one that had joined before they called (limit 0; %d pairs tell)", n, proofs)
	if n != 0 {
		t.Errorf("%d barged", n)
	}
}

// A thousand queue from four processes, and are served in the order in which the
// server has them in its queue: each one of them.
func TestThousandInOrder(t *testing.T) {
	const workers = 1000
	b := setUpQuiet(t)
	locks := b.newClient(b.server.Addr())
	l := b.lock(locks, job)
	var order []string
	groups := b.runChildren(4, childConfig{TTL: 5 * time.Second, Workers: workers / 4, Work: time.Millisecond}, func() {
		queue := "{" + key + "}:dibs:queue"
		b.eventually("all queue", func() bool { return b.call("ZCARD", queue) == int64(workers) })
		places, _ := b.call("ZRANGE", queue, "0", "-1").([]any)
		for _, place := range places {
			order = append(order, strings.SplitN(fmt.Sprint(place), " ", 5)[4])
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
	n, proofs := overtaken(all)
	t.Logf("FIGURE 1,000 in order: %d not served in their turn, %d barged (limits 0; %d pairs tell)", wrong, n, proofs)
	if wrong+n != 0 {
		t.Errorf("%d not served in their turn, %d barged", wrong, n)
	}
	b.wantNoKeys()
}

// Workers that come back at once are served alike.
func TestGreedy(t *testing.T) {
	t.Parallel()
	b := setUpQuiet(t)
	groups := b.runChildren(2, childConfig{TTL: ttl, Workers: 4, Work: time.Millisecond, For: 5 * time.Second}, func() {})
	all := b.checkServed(groups)
	var counts []int
	for _, visits := range groups {
		perWorker := make([]int, 4)
		for _, v := range visits {
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
	t.Logf("FIGURE greedy: %d to %d entries of each, ratio %.2f (limit 1.5), longest wait %v", least, most, float64(most)/float64(least), round(longest))
	if 2*most > 3*least {
		t.Errorf("entries of each: %v, want at most 1.5 times the least", counts)
	}
	b.wantNoKeys()
}

// setUpQuiet is setUp without a control, which would count among the commands.
func setUpQuiet(t *testing.T) *fixture {
	t.Helper()
	server := redistest.Start(t)
	direct := redistest.Dial(server.Addr())
	t.Cleanup(direct.Close)
	return &fixture{t: t, server: server, direct: direct, control: control{new(drill.Machine)}}
}

// perCommand tells how often each command was called since the server started.
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

// scripts tells how many were run since the server started.
func (b *fixture) scripts() int64 {
	b.t.Helper()
	stats, _ := b.server.MustCmd(b.t, "INFO", "commandstats").(string)
	_, rest, _ := strings.Cut(stats, "cmdstat_evalsha:calls=")
	n, _, _ := strings.Cut(rest, ",")
	calls, _ := strconv.ParseInt(n, 10, 64) // none yet: no line
	return calls
}
