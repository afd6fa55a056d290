// Command bench measures dibs beside its peers, and beside floors: bare programs
// that do the least that Redis allows, and are no usable locks.
//
//	go run ./bench [flags] [uncontended] [rueidis] [redigo] [contended] [delayed] [held] [family] [quorum]
//
// It starts redis-servers of its own, and each run in processes of their own.
// Numbers of two machines, or of one machine at two times of day, say little.
// Ratios do: every peer runs between two runs of the floor, on one server, and
// what is printed is the median of the ratios. With -check it exits 1 if dibs
// is below one of its bars.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A config is what the flags say.
type config struct {
	rounds     int
	time       time.Duration // of one run
	warm       time.Duration // before each
	goroutines numbers
	waiters    numbers
	held       int
	heldFor    time.Duration
	heldTTL    time.Duration
	loads      []load
	only       string // peers besides the floors, with commas between; all if empty
	profile    string // the prefix of CPU profiles, if any
	markdown   bool
	check      bool
}

// numbers is a flag of integers with commas between.
type numbers []int

func (n *numbers) String() string { return strings.Trim(fmt.Sprint([]int(*n)), "[]") }

// Set implements flag.Value.
func (n *numbers) Set(text string) error {
	*n = nil
	for field := range strings.SplitSeq(text, ",") {
		i, err := strconv.Atoi(field)
		if err != nil || i < 1 {
			return fmt.Errorf("%q is not a number above zero", field)
		}
		*n = append(*n, i)
	}
	return nil
}

func defaultConfig() config {
	return config{
		rounds: 3, time: 2 * time.Second, warm: 300 * time.Millisecond,
		goroutines: numbers{1, 16, 128}, waiters: numbers{2, 16, 128},
		held: 50_000, heldFor: 35 * time.Second, heldTTL: 30 * time.Second,
		loads: []load{{64, 5 * time.Millisecond}, {16, time.Millisecond}},
	}
}

// quickConfig only shows that everything runs: its figures mean little.
func quickConfig() config {
	return config{
		rounds: 1, time: 300 * time.Millisecond, warm: 100 * time.Millisecond,
		goroutines: numbers{1, 16}, waiters: numbers{2, 16},
		held: 5_000, heldFor: 12 * time.Second, heldTTL: 10 * time.Second,
		loads: []load{{16, time.Millisecond}},
	}
}

// tables are what can be asked for, in the order in which they are measured.
var tables = []struct {
	name    string
	measure func(*fixture, config) ([]*table, error)
}{
	{"uncontended", uncontended("uncontended", "", "redislock", "rueidislock")},
	{"rueidis", uncontended("rueidis", "@rueidis", "rueidislock")},
	{"redigo", uncontended("redigo", "@redigo")},
	{"contended", contended},
	{"delayed", delayed},
	{"held", held},
	{"family", primitives},
	{"quorum", quorums},
}

func main() {
	if isWorker() {
		exit(work(os.Stdin, os.Stdout))
	}
	c, names, err := parse(os.Args[1:])
	if err == nil {
		err = run(os.Stdout, c, names)
	}
	exit(err)
}

func exit(err error) {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case errors.Is(err, errBars):
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(2)
}

func parse(args []string) (config, []string, error) {
	c := defaultConfig()
	if slices.Contains(args, "-quick") || slices.Contains(args, "--quick") {
		c = quickConfig() // as defaults, which the other flags override
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Bool("quick", false, "a smoke run: everything once and for a moment")
	flags.IntVar(&c.rounds, "rounds", c.rounds, "how often each row is measured; the median is shown")
	flags.DurationVar(&c.time, "time", c.time, "how long each run lasts")
	flags.Var(&c.goroutines, "g", "uncontended, rueidis, redigo and family: numbers of `goroutines`")
	flags.Var(&c.waiters, "w", "contended and delayed: numbers of `waiters`")
	flags.IntVar(&c.held, "held", c.held, "held: the number of leases")
	flags.DurationVar(&c.heldFor, "for", c.heldFor, "held: how long to hold them")
	flags.DurationVar(&c.heldTTL, "ttl", c.heldTTL, "held: their TTL")
	flags.StringVar(&c.only, "peers", "", "measure only these `names`, and the floors")
	flags.StringVar(&c.profile, "cpuprofile", "", "write a CPU profile of each uncontended run to `prefix`-peer-G.prof")
	flags.BoolVar(&c.markdown, "markdown", false, "print Markdown")
	flags.BoolVar(&c.check, "check", false, "exit 1 if dibs is below one of its bars; not for -quick")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: bench [flags] [table ...]\nThe tables, all of them by default:", tableNames())
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return c, nil, err
	}
	names := flags.Args()
	for _, name := range names {
		if !slices.Contains(tableNames(), name) {
			return c, nil, fmt.Errorf("unknown table %q: want one of %v", name, tableNames())
		}
	}
	if len(names) == 0 {
		names = tableNames()
	}
	return c, names, nil
}

func tableNames() (names []string) {
	for _, t := range tables {
		names = append(names, t.name)
	}
	return names
}

// run measures and prints the tables, each as soon as it is complete.
func run(out io.Writer, c config, names []string) error {
	b, err := newFixture(1)
	if err != nil {
		return err
	}
	defer b.close()
	var missed []string
	for _, t := range tables {
		if !slices.Contains(names, t.name) {
			continue
		}
		measured, err := t.measure(b, c)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		for _, m := range measured {
			m.print(out, c.markdown, b.machine())
			missed = append(missed, m.missed()...)
		}
	}
	if !c.check {
		return nil
	}
	return verdict(out, missed)
}

var errBars = errors.New("below a bar")

func verdict(out io.Writer, missed []string) error {
	if len(missed) == 0 {
		fmt.Fprintln(out, "Every bar is met.")
		return nil
	}
	fmt.Fprintf(out, "Below the bar:\n  %s\n", strings.Join(missed, "\n  "))
	return errBars
}

// machine is what figures depend on most.
func (b *fixture) machine() string {
	return fmt.Sprintf("%s, %s %s/%s, %d cores", b.version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}
