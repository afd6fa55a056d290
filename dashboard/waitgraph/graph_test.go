package waitgraph

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
)

// token returns a token for a process's client.
func token(pid int) string { return fmt.Sprintf("web-7:%d:client%010d:m-random", pid, pid) }

// A line is a name's state: "a: 1 < 2 3" is held by process 1, and 2 and 3 wait.
func states(t *testing.T, lines ...string) (all []driver.State) {
	t.Helper()
	for _, line := range lines {
		name, rest, _ := strings.Cut(line, ": ")
		held, waiting, _ := strings.Cut(rest, " < ")
		s := driver.State{Name: name}
		for _, f := range strings.Fields(held) {
			s.Holders = append(s.Holders, ownertoken.NewHolder(token(number(t, f)), 0))
		}
		for i, f := range strings.Fields(waiting) {
			w := ownertoken.NewWaiter(token(number(t, f)), 1, 1)
			w.Waited = time.Duration(10-i) * time.Second
			s.Waiters = append(s.Waiters, w)
		}
		s.Holding, s.Waiting = len(s.Holders), len(s.Waiters)
		all = append(all, s)
	}
	return all
}

func number(t *testing.T, text string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// text formats a graph: each wait, with an exclamation mark in a cycle, and each cycle.
func text(g Graph) string {
	var lines []string
	for _, w := range g.Waits {
		mark := ""
		if w.InCycle {
			mark = "!"
		}
		lines = append(lines, fmt.Sprintf("%d-%s-%d%s", g.Processes[w.Waiter].PID, w.Name, g.Processes[w.Holder].PID, mark))
	}
	for _, c := range g.Cycles {
		line := "cycle"
		for _, w := range c.Waits {
			line += fmt.Sprintf(" %d-%s-%d", g.Processes[w.Waiter].PID, w.Name, g.Processes[w.Holder].PID)
		}
		if !c.Sure {
			line += " perhaps"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		states []string
		want   string
	}{
		{nil, ""},
		{[]string{"a: 1"}, ""},
		{[]string{"a: 1 < 2"}, "2-a-1"},
		{[]string{"a: 1 < 1"}, ""}, // two goroutines in the same process
		{[]string{"a: 1 < 2", "b: 2 < 1"}, "2-a-1!; 1-b-2!; cycle 2-a-1 1-b-2"},
		{[]string{"a: 1 < 2", "b: 2 < 3", "c: 3 < 1"}, "2-a-1!; 3-b-2!; 1-c-3!; cycle 2-a-1 1-c-3 3-b-2"},
		{[]string{"a: 1 < 2 4", "b: 2 < 1", "c: 3 < 4"}, "2-a-1!; 4-a-1; 1-b-2!; 4-c-3; cycle 2-a-1 1-b-2"},
		{[]string{"a: 1 < 2", "b: 2 < 1", "c: 3 < 4", "d: 4 < 3"}, "2-a-1!; 1-b-2!; 4-c-3!; 3-d-4!; cycle 2-a-1 1-b-2; cycle 4-c-3 3-d-4"},
		{[]string{"a: 1 < 2", "b: 2 < 3", "c: 3"}, "2-a-1; 3-b-2"}, // a chain
	} {
		have := text(Of(states(t, c.states...)))
		if !sameCycles(have, c.want) {
			t.Errorf("%q: have %s\nwant %s", c.states, have, c.want)
		}
	}
}

// sameCycles compares two texts. A cycle can begin with any wait.
func sameCycles(have, want string) bool {
	normal := func(text string) string {
		lines := strings.Split(text, "; ")
		for i, line := range lines {
			if waits, ok := strings.CutPrefix(line, "cycle "); ok {
				fields := strings.Fields(waits)
				first := slices.Index(fields, slices.Min(fields))
				lines[i] = "cycle " + strings.Join(slices.Concat(fields[first:], fields[:first]), " ")
			}
		}
		slices.Sort(lines)
		return strings.Join(lines, "; ")
	}
	return normal(have) == normal(want)
}

// A waiter for a permit need not wait for each holder of the others.
func TestCycleThroughPermits(t *testing.T) {
	all := states(t, "a: 1 3 < 2", "b: 2 < 1")
	if g := Of(all); len(g.Cycles) != 1 || !g.Cycles[0].Sure {
		t.Errorf("a writer waits for each reader: %s", text(g))
	}
	all[0].Waiters[0].Weight, all[0].Waiters[0].Limit = 1, 2
	if g := Of(all); len(g.Cycles) != 1 || g.Cycles[0].Sure {
		t.Errorf("another holder may release a permit: %s", text(g))
	}
}

// A sure cycle should be found beside the same processes' other cycles, and come first.
func TestSureCyclesFirst(t *testing.T) {
	permit := func(s *driver.State) { s.Waiters[0].Weight, s.Waiters[0].Limit = 1, 2 }
	all := states(t, "a: 1 9 < 2", "b: 2 < 1", "c: 5 8 < 6", "d: 6 < 5", "e: 2 < 3", "f: 3 < 4", "g: 4 < 2")
	permit(&all[0])
	permit(&all[2])
	g := Of(all)
	const want = "cycle 3-e-2 2-g-4 4-f-3; cycle 5-d-6 6-c-5 perhaps"
	_, cycles, _ := strings.Cut(text(g), "cycle")
	if !sameCycles("cycle"+cycles, want) || len(g.Cycles) != 2 || !g.Cycles[0].Sure || g.Cycles[1].Sure {
		t.Errorf("want %s\nhave cycle%s", want, cycles)
	}
}

// An unsure cycle should be shown if it persists, and a sure cycle at once.
func TestSuspects(t *testing.T) {
	sure := Of(states(t, "a: 1 < 2", "b: 2 < 1"))
	all := states(t, "a: 1 3 < 2", "b: 2 < 1")
	all[0].Waiters[0].Weight, all[0].Waiters[0].Limit = 1, 2
	perhaps, none := Of(all), Of(nil)
	all[1].Name = "c"
	other := Of(all)
	var s Suspects
	for i, step := range []struct {
		graph Graph
		shown int
	}{
		{sure, 1}, {none, 0}, {perhaps, 0}, {perhaps, 0}, {none, 0}, {perhaps, 0}, {perhaps, 0}, {perhaps, 1}, {perhaps, 1},
		{other, 0}, {other, 0}, {other, 1}, {none, 0},
	} {
		if have := len(s.Shown(step.graph)); have != step.shown {
			t.Errorf("graph %d: %d cycles are shown, want %d", i, have, step.shown)
		}
	}
}

func TestProcesses(t *testing.T) {
	all := states(t, "b: 1 < 2", "a: 1", "c: 2 < 1")
	all[0].Holders[0].Fence, all[0].Holders[0].Label = 7, "job"
	all = append(all,
		driver.State{Name: "foreign", Foreign: &driver.Foreign{Lock: true}, Holders: []driver.Holder{{Token: token(9)}}, Waiters: []driver.Waiter{{Token: token(3)}}},
		driver.State{Name: "chosen", Holders: []driver.Holder{{Token: "mine"}}, Waiters: []driver.Waiter{{Token: "web:x:y:z"}}},
		driver.State{Name: "reserved", Holders: []driver.Holder{{Token: token(4), Reserved: true}}, Waiters: []driver.Waiter{{Token: token(5)}}},
	)
	g := Of(all)
	var have []string
	for _, p := range g.Processes {
		line := p.String() + " holds"
		for _, e := range p.Holds {
			line += fmt.Sprintf(" %s/%d%s", e.Name, e.Fence, e.Label)
		}
		line += " waits"
		for _, e := range p.Waits {
			line += fmt.Sprintf(" %s/%d/%v", e.Name, e.Position, e.Waited)
		}
		have = append(have, line)
	}
	want := []string{
		"web-7:1 holds a/0 b/7job waits c/1/10s",
		"web-7:2 holds c/0 waits b/1/10s",
		"web-7:3 holds waits foreign/1/0s",
		"web-7:5 holds waits reserved/1/0s",
		"web-7:4 holds reserved/0 waits",
	}
	if !slices.Equal(have, want) {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
	if len(g.Waits) != 2 {
		t.Errorf("waits %s", text(g))
	}
}

// Two clients with the same process number, as in two containers, should be two processes.
func TestClientsOfOneProcessNumber(t *testing.T) {
	const first, second = "app:1:AAAAclient0000000:m-random", "app:1:BBBBclient0000000:m-random"
	g := Of([]driver.State{{Name: "n", Holders: []driver.Holder{{Token: first}}, Waiters: []driver.Waiter{{Token: second}}}})
	if len(g.Processes) != 2 || len(g.Waits) != 1 || g.Processes[0].String() != "app:1/BBBB" || g.Processes[1].String() != "app:1/AAAA" {
		t.Errorf("%+v", g)
	}
}

// A wait should be part of a cycle exactly if its holder reaches its waiter.
func TestCyclesOfRandomGraphs(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		const processes = 7
		var all []driver.State
		for name := range 8 {
			s := driver.State{Name: fmt.Sprint(name), Holders: []driver.Holder{ownertoken.NewHolder(token(1+random.IntN(processes)), 0)}}
			for range random.IntN(3) {
				s.Waiters = append(s.Waiters, ownertoken.NewWaiter(token(1+random.IntN(processes)), 1, 1))
			}
			all = append(all, s)
		}
		g := Of(all)
		for _, w := range g.Waits {
			if want := reaches(g, w.Holder, w.Waiter); w.InCycle != want {
				t.Fatalf("wait %+v: want %v in %s", w, want, text(g))
			}
		}
		for _, c := range g.Cycles {
			wantClosed(t, g, c)
		}
	}
}

func reaches(g Graph, from, to int) bool {
	seen := map[int]bool{from: true}
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		for _, w := range g.Waits {
			if w.Waiter == queue[0] && !seen[w.Holder] {
				seen[w.Holder] = true
				queue = append(queue, w.Holder)
			}
		}
	}
	return seen[to]
}

func wantClosed(t *testing.T, g Graph, c Cycle) {
	t.Helper()
	if len(c.Waits) < 2 {
		t.Fatalf("a cycle of %d waits in %s", len(c.Waits), text(g))
	}
	for i, w := range c.Waits {
		if next := c.Waits[(i+1)%len(c.Waits)]; w.Holder != next.Waiter {
			t.Fatalf("the cycle is not closed: %s", text(g))
		}
	}
}

// A chain with a hundred thousand waiters should need neither a deep stack nor quadratic time.
func TestLongChain(t *testing.T) {
	const n = 99_999
	all := make([]driver.State, n)
	for i := range all {
		all[i] = driver.State{
			Name:    fmt.Sprint(i),
			Holders: []driver.Holder{{Token: token(i + 1)}}, Waiters: []driver.Waiter{{Token: token(i + 2)}},
		}
	}
	if g := Of(all); len(g.Waits) != n || len(g.Cycles) != 0 || g.Partial {
		t.Errorf("%d waits, %d cycles", len(g.Waits), len(g.Cycles))
	}
	all = append(all, driver.State{Name: "last", Holders: []driver.Holder{{Token: token(n + 1)}}, Waiters: []driver.Waiter{{Token: token(1)}}})
	if g := Of(all); len(g.Cycles) != 1 || len(g.Cycles[0].Waits) != n+1 || g.Partial {
		t.Errorf("%d waits, %d cycles", len(g.Waits), len(g.Cycles))
	}
}

func TestTooManyWaits(t *testing.T) {
	crowd := driver.State{Name: "n"}
	for i := range 400 {
		crowd.Holders = append(crowd.Holders, driver.Holder{Token: token(i + 1)})
		crowd.Waiters = append(crowd.Waiters, driver.Waiter{Token: token(i + 1000)})
	}
	if g := Of([]driver.State{crowd}); len(g.Waits) != maxWaits || !g.Partial {
		t.Errorf("%d waits, partial: %v", len(g.Waits), g.Partial)
	}
}
