// Gotest runs go test, and runs a failed test again if the machine stalled during it.
//
//	go run ./scripts/gotest [FLAGS OF GO TEST] PATTERN
//
// Many tests measure time against real servers. On a virtual machine whose host takes the
// CPU away for a second, such a test fails although nothing is wrong. Gotest measures
// what the machine lost while each test ran. If it lost a lot, the failure is printed and
// the test runs again, with the others that failed, after the machine has recovered. Any
// other failure is final. So are a data race, a panic, and a test that saw two holders or a
// wrong fence: no stall may cause these. The last lines name the tests that failed for good.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: gotest [FLAGS OF GO TEST] PATTERN")
		os.Exit(2)
	}
	machine := watchMachine()
	started := time.Now()
	g := gotest{
		flags: os.Args[1 : len(os.Args)-1],
		lost:  machine.lost,
		calm:  machine.waitCalm,
		late:  func() bool { return time.Since(started) > patience },
		out:   os.Stdout,
	}
	ok, err := g.run(os.Args[len(os.Args)-1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// patience is how long after the start a further run may begin.
const patience = 70 * time.Minute

// gotest runs tests and decides which of them run again.
type gotest struct {
	flags []string
	lost  func(from, to time.Time) time.Duration // the time that the machine lost
	calm  func()                                 // waits until the machine runs again
	late  func() bool                            // no further run may begin
	out   io.Writer
	dir   string // of the go command; empty is the current one
}

// runs is how often a test runs at most.
const runs = 8

// excused is the least loss that excuses a failure.
const excused = 25 * time.Millisecond

// run reports whether all tests passed, some of them possibly not at their first run.
func (g *gotest) run(pattern string) (bool, error) {
	g.calm() // compiling the tests may have exhausted the machine
	first, err := g.test(pattern)
	if err != nil {
		return false, err
	}
	final, failed := first.final, first.stalled
	for n := 2; n <= runs && len(failed) > 0 && !g.late(); n++ {
		g.calm()
		var still []failure
		for _, pkg := range packages(failed) {
			fmt.Fprintf(g.out, "\nRun %d of %d of %s: %s\n", n, runs, pkg, strings.Join(tests(failed, pkg), " "))
			again, err := g.test(pkg, "-count=1", "-run", "^("+strings.Join(tests(failed, pkg), "|")+")$")
			if err != nil {
				return false, err
			}
			final, still = append(final, again.final...), append(still, again.stalled...)
		}
		failed = still
	}
	for _, f := range failed {
		final = append(final, fmt.Sprintf("%s %s failed whenever it ran, each time while the machine stalled", f.pkg, f.test))
	}
	for _, line := range final {
		fmt.Fprintf(g.out, "FAILED FOR GOOD: %s\n", line)
	}
	return len(final) == 0, nil
}

// verdict is what a run of go test means.
type verdict struct {
	stalled []failure // that the machine may have caused
	final   []string  // the others, a line each
}

// test runs go test once.
func (g *gotest) test(pattern string, flags ...string) (verdict, error) {
	args := slices.Concat([]string{"test", "-json"}, g.flags, flags, []string{pattern})
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = g.dir, os.Stderr
	// A process with the race detector otherwise sleeps for a second when it exits.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return verdict{}, err
	}
	if err := cmd.Start(); err != nil {
		return verdict{}, err
	}
	result, readErr := read(stdout, g.out)
	exit := cmd.Wait()
	if readErr != nil {
		return verdict{}, readErr
	}
	var v verdict
	for _, pkg := range result.broken {
		v.final = append(v.final, pkg+" did not compile, or ended early")
	}
	for _, f := range result.failed {
		lost := g.lost(f.from, f.to)
		if why := f.final(lost); why != "" {
			v.final = append(v.final, fmt.Sprintf("%s %s: %s", f.pkg, f.test, why))
			continue
		}
		fmt.Fprintf(g.out, "%s failed while the machine stalled for %v\n", f.test, lost.Round(time.Millisecond))
		v.stalled = append(v.stalled, f)
	}
	if exit != nil && len(v.final)+len(v.stalled) == 0 {
		v.final = append(v.final, "go test: "+exit.Error())
	}
	return v, nil
}

// final says why a stall does not excuse the failure, or nothing if one does.
func (f failure) final(lost time.Duration) string {
	if lost < excused {
		return fmt.Sprintf("the machine lost %v at most", lost.Round(time.Millisecond))
	}
	for line := range strings.Lines(f.output) {
		// A figure counts what a test does not always forbid.
		if !strings.Contains(line, "FIGURE ") && safety.MatchString(line) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// safety matches what a test prints when it saw what no stall may cause.
var safety = regexp.MustCompile(`DATA RACE|panic:|fatal error:` +
	`|(two|concurrent) (holders|leaders)|[1-9][0-9]* (conflicts|overlaps|leaders|fences)\b` +
	`|(exclusion|limit|fences) on "` + // rules of internal/test/history
	`|no sequential order` + // of internal/test/linear
	`|fence [0-9]+ (after|was|is)\b|fence did not grow`)

// packages returns the packages of the failures, each once.
func packages(failed []failure) []string {
	var names []string
	for _, f := range failed {
		if !slices.Contains(names, f.pkg) {
			names = append(names, f.pkg)
		}
	}
	return names
}

// tests returns the failed tests of a package.
func tests(failed []failure, pkg string) []string {
	var names []string
	for _, f := range failed {
		if f.pkg == pkg {
			names = append(names, f.test)
		}
	}
	return names
}
