// Gotest runs go test, and runs a failed test again if the machine stalled during it.
//
//	go run ./scripts/gotest [FLAGS OF GO TEST] PATTERN
//
// Many tests measure time against real servers. On a virtual machine whose host takes the
// CPU away for a second, such a test fails although nothing is wrong. Gotest measures
// what the machine lost while each test ran. If it lost a lot, the failure is printed and
// the test runs again, at most four times. Any other failure is final. So are a data race, a
// panic, and a test that saw two holders or a wrong fence: no stall may cause these.
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
	g := gotest{flags: os.Args[1 : len(os.Args)-1], lost: machine.lost, calm: machine.waitCalm, out: os.Stdout}
	ok, err := g.run(os.Args[len(os.Args)-1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// gotest runs tests and decides which of them run again.
type gotest struct {
	flags []string
	lost  func(from, to time.Time) time.Duration // the time that the machine lost
	calm  func()                                 // waits until the machine runs again
	out   io.Writer
	dir   string // of the go command; empty is the current one
}

// runs is how often a test runs at most.
const runs = 5

// excused is the least loss that excuses a failure.
const excused = 50 * time.Millisecond

// run reports whether all tests passed, some of them possibly not at their first run.
func (g *gotest) run(pattern string) (bool, error) {
	failed, ok, err := g.test(pattern)
	if err != nil {
		return false, err
	}
	for n := 2; n <= runs && len(failed) > 0; n++ {
		var still []failure
		for _, pkg := range packages(failed) {
			g.calm()
			fmt.Fprintf(g.out, "\nRun %d of %d of %s: %s\n", n, runs, pkg, strings.Join(tests(failed, pkg), " "))
			again, passed, err := g.test(pkg, "-count=1", "-run", "^("+strings.Join(tests(failed, pkg), "|")+")$")
			if err != nil {
				return false, err
			}
			ok = ok && passed
			still = append(still, again...)
		}
		failed = still
	}
	return ok && len(failed) == 0, nil
}

// test runs go test once. It returns the failures that the machine may have caused, and
// whether there was no other one.
func (g *gotest) test(pattern string, flags ...string) (stalled []failure, ok bool, err error) {
	args := slices.Concat([]string{"test", "-json"}, g.flags, flags, []string{pattern})
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = g.dir, os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, false, err
	}
	if err := cmd.Start(); err != nil {
		return nil, false, err
	}
	result, readErr := read(stdout, g.out)
	exit := cmd.Wait()
	if readErr != nil {
		return nil, false, readErr
	}
	ok = exit == nil || !result.broken && len(result.failed) > 0
	for _, f := range result.failed {
		lost := g.lost(f.from, f.to)
		if lost < excused || final.MatchString(f.output) {
			ok = false
			continue
		}
		fmt.Fprintf(g.out, "%s failed while the machine stalled for %v\n", f.test, lost.Round(time.Millisecond))
		stalled = append(stalled, f)
	}
	return stalled, ok, nil
}

// final matches the output of failures that a stall does not excuse.
var final = regexp.MustCompile(`DATA RACE|panic:|fatal error:` +
	`|(two|concurrent) (holders|leaders)|[1-9][0-9]* (conflicts|overlaps|leaders|fences)\b` +
	`|(exclusion|limit|fences) on "` + // rules of internal/history
	`|no sequential order` + // of internal/linear
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
