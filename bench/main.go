// Command bench compares dibs with other lock libraries and with baselines. A baseline is
// a program that sends the bare commands without a lock library. It is not a usable lock.
//
//	go run ./bench [flags] [table ...]
//
// The tables are uncontended, rueidis, redigo, contended, delayed, held, primitives and
// quorum.
//
// bench starts its own Redis servers. Each run has processes of its own. Absolute numbers
// cannot be compared between machines, or between two times of day. Ratios can: each peer
// runs between two runs of the baseline on the same server, and bench prints the median
// of the ratios. With -check it exits with 1 if dibs is below one of its bars.
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

// A config holds the values of the flags.
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
	only       string // peers besides the baselines, separated by commas; empty: all
	profile    string // file name prefix of CPU profiles, or ""
	markdown   bool
	check      bool
}

// numbers is a flag of integers that are separated by commas.
type numbers []int

func (n *numbers) String() string { return strings.Trim(fmt.Sprint([]int(*n)), "[]") }

// Set implements flag.Value.
func (n *numbers) Set(text string) error {
	*n = nil
	for field := range strings.SplitSeq(text, ",") {
		i, err := strconv.Atoi(field)
		if err != nil || i < 1 {
			return fmt.Errorf("%q: want a number above zero", field)
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

// quickConfig returns the config of a smoke test. Its runs are too short for meaningful
// figures.
func quickConfig() config {
	return config{
		rounds: 1, time: 300 * time.Millisecond, warm: 100 * time.Millisecond,
		goroutines: numbers{1, 16}, waiters: numbers{2, 16},
		held: 5_000, heldFor: 12 * time.Second, heldTTL: 10 * time.Second,
		loads: []load{{16, time.Millisecond}},
	}
}

// tables are all tables, in the order in which they are measured.
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
	{"primitives", primitives},
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
	flags.Bool("quick", false, "smoke test: run everything once and briefly")
	flags.IntVar(&c.rounds, "rounds", c.rounds, "number of measurements of each row; the median is shown")
	flags.DurationVar(&c.time, "time", c.time, "duration of each run")
	flags.Var(&c.goroutines, "g", "uncontended, rueidis, redigo and primitives: numbers of `goroutines`")
	flags.Var(&c.waiters, "w", "contended and delayed: numbers of `waiters`")
	flags.IntVar(&c.held, "held", c.held, "held: number of leases")
	flags.DurationVar(&c.heldFor, "for", c.heldFor, "held: time for which they are held")
	flags.DurationVar(&c.heldTTL, "ttl", c.heldTTL, "held: TTL of the leases")
	flags.StringVar(&c.only, "peers", "", "measure only these `names` and the baselines (default: all)")
	flags.StringVar(&c.profile, "cpuprofile", "", "write a CPU profile of each uncontended run to `prefix`-peer-G.prof")
	flags.BoolVar(&c.markdown, "markdown", false, "print Markdown")
	flags.BoolVar(&c.check, "check", false, "exit with 1 if dibs is below one of its bars; not useful with -quick")
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

// run measures the tables and prints each one as soon as it is complete.
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

// machine describes the server, the Go version and the cores: the figures depend on them.
func (b *fixture) machine() string {
	return fmt.Sprintf("%s, %s %s/%s, %d cores", b.version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}
