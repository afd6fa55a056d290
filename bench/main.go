// Command bench compares dibs with other lock libraries and with baselines. A baseline is a program
// that sends only the bare commands. It is not a usable lock.
//
//	go run ./bench [flags] [table ...]
//
// The tables are uncontended, rueidis, redigo, contended, delayed, cohort, held, primitives and
// quorum. The PostgreSQL tables are pg-uncontended, pg-handoff, pg-statements, pg-held and
// pg-names; postgres means all of them. The fault tables are storm-stall, storm-cut, storm-limit,
// storm-restart, storm-loss, storm-deadlines, storm-busy and storm-stores; storm means all of them,
// and "storm stall cut" the first two.
//
// bench starts its own servers. Each run has its own processes. Absolute numbers cannot be compared
// between machines, or between two times of day. Ratios can: each peer runs between two baseline
// runs on the same server, and bench prints the median ratio. With -check it exits with 1 if dibs
// misses a bar.
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

// A config holds the flags' values.
type config struct {
	rounds     int
	time       time.Duration // for a run
	warm       time.Duration // before each
	goroutines numbers
	waiters    numbers
	held       int
	heldFor    time.Duration
	heldTTL    time.Duration
	loads      []load
	pgWaiters  numbers
	pgHeld     int
	names      int
	idle       time.Duration // after which names count as unused
	computing  numbers
	stormSize  float64 // for the clients and leases
	stormTime  float64 // for the TTLs and faults
	stormCase  string  // part of the wanted cases' names; empty: all
	only       string  // peers besides the baselines, separated by commas; empty: all
	profile    string  // file name prefix of CPU profiles, or ""
	markdown   bool
	check      bool
}

// numbers is a flag with comma-separated integers.
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
		loads:     []load{{64, 5 * time.Millisecond}, {16, time.Millisecond}},
		pgWaiters: numbers{2, 8, 32, 128}, pgHeld: 10_000, names: 200_000, idle: 61 * time.Second,
		computing: numbers{15, 30, 60, 200}, stormSize: 1, stormTime: 1,
	}
}

// quickConfig returns the config for a smoke test. Its runs are too short for meaningful figures.
func quickConfig() config {
	return config{
		rounds: 1, time: 300 * time.Millisecond, warm: 100 * time.Millisecond,
		goroutines: numbers{1, 16}, waiters: numbers{2, 16},
		held: 5_000, heldFor: 12 * time.Second, heldTTL: 10 * time.Second,
		loads:     []load{{16, time.Millisecond}},
		pgWaiters: numbers{2, 16}, pgHeld: 2_000, names: 10_000,
		computing: numbers{15}, stormSize: 0.02, stormTime: 0.1,
	}
}

// A tableSet is a table or several tables measured together.
type tableSet struct {
	name    string
	measure func(*fixture, config) ([]*table, error)
}

// redisTables are the Redis tables, in the order of measurement.
var redisTables = []tableSet{
	{"uncontended", uncontended("uncontended", "", "redislock", "rueidislock")},
	{"rueidis", uncontended("rueidis", "@rueidis", "rueidislock")},
	{"redigo", uncontended("redigo", "@redigo")},
	{"contended", contended},
	{"delayed", delayed},
	{"cohort", cohorts},
	{"held", held},
	{"primitives", primitives},
	{"quorum", quorums},
}

// postgresTables are the PostgreSQL tables. Each starts a server with its own settings.
var postgresTables = []tableSet{
	{"pg-uncontended", withPostgres(pgUncontended, durable)},
	{"pg-handoff", withPostgres(pgHandoff, durable)},
	{"pg-statements", withPostgres(pgStatements, durable, counted)},
	{"pg-held", withPostgres(pgHeld, durable, counted)},
	{"pg-names", withPostgres(pgNames, logged)},
}

// stormTables are the fault tables. Each starts its own servers.
var stormTables = []tableSet{
	{"storm-stall", stall},
	{"storm-cut", cut},
	{"storm-limit", limited},
	{"storm-restart", restarted},
	{"storm-loss", lossesTold},
	{"storm-deadlines", deadlines},
	{"storm-busy", busy},
	{"storm-stores", stores},
}

const (
	postgres = "postgres" // the name for all PostgreSQL tables
	storms   = "storm"    // the name for all fault tables
)

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
	flags.Var(&c.pgWaiters, "pg-w", "pg-handoff and pg-statements: numbers of `waiters`")
	flags.IntVar(&c.pgHeld, "pg-held", c.pgHeld, "pg-held: number of leases")
	flags.IntVar(&c.names, "names", c.names, "pg-names: number of names")
	flags.DurationVar(&c.idle, "idle", c.idle, "pg-names: pause before the unused names are removed; dibs removes names that nobody used for a minute")
	flags.Var(&c.computing, "computing", "storm-busy: numbers of computing `goroutines`")
	flags.Float64Var(&c.stormSize, "storm-size", c.stormSize, "storm: `factor` of the clients and leases")
	flags.Float64Var(&c.stormTime, "storm-time", c.stormTime, "storm: `factor` of the TTLs and of the faults")
	flags.StringVar(&c.stormCase, "storm-case", "", "storm: only the cases whose names, with that of the table, contain this `text`, as in \"Redis, 30 for 9s\"")
	flags.StringVar(&c.only, "peers", "", "measure only these `names` and the baselines (default: all)")
	flags.StringVar(&c.profile, "cpuprofile", "", "write a CPU profile of each uncontended run to `prefix`-peer-G.prof")
	flags.BoolVar(&c.markdown, "markdown", false, "print Markdown")
	flags.BoolVar(&c.check, "check", false, "exit with 1 if dibs is below one of its bars; not useful with -quick")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: bench [flags] [table ...]\nThe tables, by default:", namesOf(redisTables))
		fmt.Fprintln(flags.Output(), "Those of PostgreSQL, all with postgres:", namesOf(postgresTables))
		fmt.Fprintln(flags.Output(), "Those of faults, all with storm:", namesOf(stormTables))
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return c, nil, err
	}
	names, err := tableNames(flags.Args())
	return c, names, err
}

// tableNames returns the tables selected by the arguments: by default, the Redis tables.
func tableNames(args []string) (names []string, err error) {
	if len(args) == 0 {
		return namesOf(redisTables), nil
	}
	known := slices.Concat(namesOf(redisTables), namesOf(postgresTables), namesOf(stormTables))
	for i, name := range args {
		switch {
		case name == storms && i == len(args)-1:
			names = append(names, namesOf(stormTables)...)
		case name == storms: // the others are scenarios
		case slices.Contains(args[:i], storms) && slices.Contains(known, storms+"-"+name):
			names = append(names, storms+"-"+name)
		case name == postgres:
			names = append(names, namesOf(postgresTables)...)
		case slices.Contains(known, name):
			names = append(names, name)
		default:
			return nil, fmt.Errorf("unknown table %q: want one of %v", name, append(known, postgres, storms))
		}
	}
	return names, nil
}

func namesOf(sets []tableSet) (names []string) {
	for _, s := range sets {
		names = append(names, s.name)
	}
	return names
}

// run measures the tables and prints each as soon as it is complete.
func run(out io.Writer, c config, names []string) error {
	missed, err := measureAll(out, c, names, redisTables, func() (*fixture, error) { return newRedis(1) })
	if err != nil {
		return err
	}
	more, err := measureAll(out, c, names, postgresTables, nil)
	if err != nil {
		return err
	}
	stormy, err := measureAll(out, c, names, stormTables, nil)
	if err != nil {
		return err
	}
	if !c.check {
		return nil
	}
	return verdict(out, slices.Concat(missed, more, stormy))
}

// measureAll measures the named tables on shared servers, or without start on their own. It returns
// the missed bars.
func measureAll(out io.Writer, c config, names []string, sets []tableSet, start func() (*fixture, error)) (missed []string, err error) {
	sets = slices.DeleteFunc(slices.Clone(sets), func(s tableSet) bool { return !slices.Contains(names, s.name) })
	if len(sets) == 0 {
		return nil, nil
	}
	var b *fixture
	if start != nil {
		if b, err = start(); err != nil {
			return nil, err
		}
		defer b.close()
	}
	for _, s := range sets {
		measured, err := s.measure(b, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		for _, t := range measured {
			if len(t.rows)+len(t.notes) == 0 { // no case is wanted
				continue
			}
			if t.server == "" {
				t.server = b.version
			}
			t.print(out, c.markdown, machine(t.server))
			missed = append(missed, t.missed()...)
		}
	}
	return missed, nil
}

var errBars = errors.New("below a bar")

func verdict(out io.Writer, missed []string) error {
	if len(missed) == 0 {
		fmt.Fprintln(out, "Every bar that was measured is met.")
		return nil
	}
	fmt.Fprintf(out, "Below the bar:\n  %s\n", strings.Join(missed, "\n  "))
	return errBars
}

// machine describes the server, the Go version and the cores: the figures depend on them.
func machine(server string) string {
	return fmt.Sprintf("%s, %s %s/%s, %d cores", server, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}
