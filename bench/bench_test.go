package main

import (
	"bytes"
	"errors"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/dibslock/dibs/internal/test/redistest"
)

// TestMain makes the test binary run as a worker: startWorkers starts it.
func TestMain(m *testing.M) {
	if isWorker() {
		exit(work(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// short is a configuration for tables whose values do not matter. The leases are long enough for a
// busy machine to renew them.
var short = config{
	rounds: 1, time: 300 * time.Millisecond, warm: 100 * time.Millisecond,
	goroutines: numbers{2}, waiters: numbers{3}, pgWaiters: numbers{3},
	held: 200, pgHeld: 200, heldFor: 2 * time.Second, heldTTL: 3 * time.Second, names: 1000,
	loads: []load{{5, time.Millisecond}},
}

// TestSmoke runs every table briefly. All figures must be there, and dibs must not fail. The
// values are meaningless on a machine running tests.
func TestSmoke(t *testing.T) {
	t.Parallel()
	redistest.Start(t) // skips where there is no server
	c := short
	c.only = "dibs,dibs@rueidis,dibs@redigo"
	out := runTables(t, c, redisTables)
	wantTexts(t, out, []string{
		"== uncontended\n", "== rueidis\n", "== redigo\n", "== contended\n", "== delayed pair\n", "== delayed\n", "== held\n", "== primitives\n",
		"== quorum pair\n", "== quorum contended\n", "== quorum faults\n", "baseline-quorum ",
		"baseline ", "baseline-grant ", "baseline-renew@batch ", "dibs ", "dibs@rueidis ", "dibs@redigo ", "redis-server ",
	})
}

// TestPostgres runs the PostgreSQL tables briefly, as TestSmoke does.
func TestPostgres(t *testing.T) {
	t.Parallel()
	server, err := pgtest.Start()
	if errors.Is(err, pgtest.ErrNoServer) && os.Getenv("DIBS_REQUIRE_POSTGRES") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	out := runTables(t, short, postgresTables)
	wantTexts(t, out, []string{
		"== pg-uncontended\n", "== pg-handoff\n", "== pg-statements\n", "== pg-held\n", "== pg-names\n",
		"baseline ", "baseline-notify ", "baseline-renew@batch ", "dibs ", "advisory ", "try-advisory@10ms ", "PostgreSQL ",
	})
}

// runTables runs tables in sequence and returns their output.
func runTables(t *testing.T, c config, sets []tableSet) string {
	t.Helper()
	var out strings.Builder
	for _, s := range sets {
		out.WriteString(runTable(t, c, s.name))
	}
	return out.String()
}

// runTable runs a table, and again for longer if a call failed or a figure is missing. On a busy
// machine, a call may end at its timeout, and a short run may be too short for a single lock.
func runTable(t *testing.T, c config, name string) string {
	t.Helper()
	const tries = 4
	for try := 1; ; try++ {
		var out bytes.Buffer
		err := run(&out, c, []string{name})
		wantNoOverlaps(t, out.String())
		problems := problems(out.String())
		if err == nil && len(problems) == 0 {
			return out.String()
		}
		if try == tries {
			t.Fatalf("%s: %v, %q in\n%s", name, err, problems, out.String())
		}
		c.time, c.heldFor, c.heldTTL = 3*c.time, 2*c.heldFor, 2*c.heldTTL
	}
}

func wantTexts(t *testing.T, out string, wanted []string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

// wantNoOverlaps checks that dibs never has two holders.
func wantNoOverlaps(t *testing.T, out string) {
	t.Helper()
	for line, last := range rows(out) {
		fields := strings.Fields(line)
		if slices.Contains(fields, ours) && last == "overlaps" && fields[len(fields)-1] != "0" {
			t.Errorf("overlapping holders: %s\n%s", line, out)
		}
	}
}

// problems returns dibs' failures, and its rows without a figure.
func problems(out string) (lines []string) {
	for line := range rows(out) {
		fields := strings.Fields(line)
		missing := slices.Contains(fields, ours) && fields[0] != "end" && slices.Contains(fields, "-")
		if missing || strings.HasPrefix(line, "! "+ours) {
			lines = append(lines, line)
		}
	}
	return lines
}

// rows yields each line with the header of its table's last column.
func rows(out string) iter.Seq2[string, string] {
	return func(yield func(line, last string) bool) {
		last := ""
		for line := range strings.Lines(out) {
			if fields := strings.Fields(line); slices.Contains(fields, "peer") {
				last = fields[len(fields)-1]
			}
			if !yield(line, last) {
				return
			}
		}
	}
}

// TestStorms runs each fault table briefly, as TestSmoke does. The TTLs are too short for a machine
// running tests, so leases can be lost.
func TestStorms(t *testing.T) {
	redistest.Start(t)
	c := config{computing: numbers{2}, stormSize: 0.004, stormTime: 0.02}
	for _, s := range stormTables {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel() // they mostly sleep
			var out bytes.Buffer
			if err := run(&out, c, []string{s.name}); err != nil {
				t.Fatal(err)
			}
			wantTexts(t, out.String(), []string{"== " + s.name})
		})
	}
}

func TestBars(t *testing.T) {
	table := &table{
		name: "t", load: "G", columns: []column{{"rate", 0, median}, {"ratio", 2, median}, {"lost", 0, maximum}},
		bars: []bar{aboveAll("rate"), atLeast("ratio", 0.85), atMost("lost", 0)},
	}
	add := func(peer string, runs ...figures) { table.row("1", peer).runs = runs }
	add("baseline", figures{"rate": 200, "ratio": 1, "lost": 0})
	add("dibs", figures{"rate": 100, "ratio": 0.9, "lost": 0}, figures{"rate": 110, "ratio": 0.7, "lost": 0}, figures{"rate": 90, "ratio": 0.86, "lost": 0})
	add("other", figures{"rate": 99, "ratio": 0.5, "lost": 7})
	if missed := table.missed(); len(missed) > 0 {
		t.Errorf("missed %q, want none", missed)
	}
	add("dibs", figures{"rate": 80, "ratio": 0.8, "lost": 1}, figures{"rate": 80, "lost": 0})
	want := []string{
		"t, G 1: rate 80, other has 99",
		"t, G 1: ratio 0.80, want at least 0.85",
		"t, G 1: lost 1, want at most 0",
	}
	if missed := table.missed(); !slices.Equal(missed, want) {
		t.Errorf("missed %q, want %q", missed, want)
	}
	add("dibs", figures{"rate": 100, "lost": 0})
	if missed := table.missed(); !slices.Equal(missed, []string{"t, G 1: ratio was not measured"}) {
		t.Errorf("missed %q", missed)
	}
	table.bars = []bar{timesAll("rate", 1.3)}
	if missed := table.missed(); !slices.Equal(missed, []string{"t, G 1: rate 100, other has 99, want 1.3 times that"}) {
		t.Errorf("missed %q", missed)
	}
	if err := verdict(new(bytes.Buffer), want); !errors.Is(err, errBars) {
		t.Errorf("verdict = %v, want errBars", err)
	}
}

func TestPrint(t *testing.T) {
	table := &table{
		name: "speed", about: []string{"Explanation."}, load: "G",
		columns: []column{{"p50 µs", 1, median}, {"lost", 0, maximum}},
		notes:   []string{"hm"},
	}
	table.row("1", "baseline").runs = []figures{{"p50 µs": 12.34, "lost": 0}}
	table.row("1", "dibs").runs = []figures{{"p50 µs": 1234, "lost": 0}}
	table.row("16", "baseline").runs = []figures{{"p50 µs": 5}}
	for markdown, want := range map[bool]string{
		false: `== speed
Explanation.

G   peer      p50 µs  lost
1   baseline    12.3     0
    dibs      1234.0     0

16  baseline     5.0     -

! hm
(a machine)

`,
		true: `### speed

Explanation.

| G | peer | p50 µs | lost |
|---|---|---:|---:|
| 1 | baseline | 12.3 | 0 |
|  | dibs | 1234.0 | 0 |
| 16 | baseline | 5.0 | - |

! hm
(a machine)

`,
	} {
		var out bytes.Buffer
		table.print(&out, markdown, "a machine")
		if out.String() != want {
			t.Errorf("markdown %v: got\n%s\nwant\n%s", markdown, out.String(), want)
		}
	}
}

func TestBusyWarning(t *testing.T) {
	table := &table{name: "t", load: "G", columns: []column{{"rate", 0, median}}}
	r := table.row("1", "baseline")
	r.runs = []figures{{"rate": 100}, {"rate": 140}}
	if got := table.busyWarning(r); got != "" {
		t.Errorf("idle machine: %q", got)
	}
	r.runs = append(r.runs, figures{"rate": 50})
	if got := table.busyWarning(r); !strings.Contains(got, "factor of 2.8") {
		t.Errorf("busy machine: %q", got)
	}
}

func TestParse(t *testing.T) {
	c, names, err := parse([]string{"-rounds", "7", "-quick", "-w", "2,4", "contended", "held"})
	if err != nil || c.rounds != 7 || c.time != quickConfig().time || !slices.Equal(c.waiters, numbers{2, 4}) || !slices.Equal(names, []string{"contended", "held"}) {
		t.Errorf("got %+v, %v, %v", c, names, err)
	}
	if _, _, err := parse([]string{"nothing"}); err == nil {
		t.Error("want an error for an unknown table")
	}
	if _, names, _ := parse(nil); !slices.Equal(names, namesOf(redisTables)) {
		t.Errorf("without tables: got %v, want all", names)
	}
	for args, want := range map[string][]string{
		"storm":           namesOf(stormTables),
		"storm stall cut": {"storm-stall", "storm-cut"},
		"held storm loss": {"held", "storm-loss"},
	} {
		if _, names, err := parse(strings.Fields(args)); err != nil || !slices.Equal(names, want) {
			t.Errorf("%s: got %v, %v, want %v", args, names, err, want)
		}
	}
	if _, _, err := parse([]string{"stall"}); err == nil {
		t.Error("want an error for a scenario without storm")
	}
}
