package history_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// cohortBugs are bugs in the cohort code: old is replaced by new.
var cohortBugs = []struct{ name, file, old, new string }{
	{"two holders", "cohort.go", "	case c.holder != nil:\n", "	case c.holder != nil && next == nil:\n"},
	{"a fence twice", "fenceblock.go", "	b.last++\n	return b.last", "	if b.last++; b.last%7 == 0 {\n		return b.last - 1\n	}\n	return b.last"},
	{"fences of others", "tenure.go", "t.fences.add(first, first+uint64(n)-1)", "t.fences.add(first, first+uint64(n)+50)"},
	{"endless passes", "cohort.go", "		t.left--\n", ""},
	{"the holder is not notified of a loss", "lease.go", "func() { _ = l.Err() }", "func() {}"},
	{"a lost lease is passed on", "cohort.go", "			c.releaseLater(c.endTenure())\n		}\n	})", "			_ = t\n		}\n	})"},
	{"a pass of an expired lease", "caller.go", "t.store.Err() != nil", "t.store == nil"},
	{"a call that lost its pass waits last", "cohort.go", "	c.callers.addFirst(q)\n", "	c.callers.add(q)\n"},
	{"last come, first served", "caller.go", "	c.callers.add(q)\n", "	c.callers.addFirst(q)\n"},
	{"a queue entry without callers", "caller.go", "		c.acquiring.cancel()\n", "		_ = c.acquiring\n"},
	{"linger while others wait", "cohort.go", "next == nil && (t.others == somebody || c.linger == 0)", "next == nil && c.linger == 0"},
	{"linger ends a lease in use", "tenure.go", "return idle && left <= 0", "return left <= 0"},
	{"a tenure without end", "cohort.go", "now.Sub(t.since) >= max(longestTenure, c.linger)", "now.Sub(t.since) >= 1000*max(longestTenure, c.linger)"},
	{"a tenure shorter than linger", "cohort.go", "max(longestTenure, c.linger)", "longestTenure"},
	{"fences ahead of the clock", "tenure.go", "n := max(need, min(t.served, manyFences))", "n := max(need, 100*manyFences)"},
	{"a call that gave up holds", "caller.go", "	if q.receive() || q.err != nil {", "	if q.ctx.Err() == nil && q.receive() || q.err != nil {"},
	{"another label", "cohort.go", "next != nil && next.label != t.label", "next != nil && next.label != t.label && t.label == \"\""},
	{"the Timeout of the Mutex", "caller.go", "timeout: set.Timeout", "timeout: c.base.Timeout"},
	{"no Wanted for local calls", "caller.go", "	c.signalWanted()\n", ""},
	{"an outage ends a call that waits", "tenure.go", "!outage || !q.contended", "q != nil"},
	{"Err after MaxHold waits for a timer", "lease.go", "l.timer != nil && !time.Now().Before(l.until)", "false"},
	{"no release after MaxHold", "lease.go", "		l.call.c.endedItself(l.call)\n", ""},
}

// The cohort tests should find each planted bug. Each bug takes a run of these tests, so this is a
// long test.
func TestPlantedCohortBugsAreFound(t *testing.T) {
	if os.Getenv("DIBS_LONG") != "1" {
		t.Skip("a long test: DIBS_LONG=1 runs it")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, bug := range cohortBugs {
		t.Run(bug.name, func(t *testing.T) {
			overlay := plantBug(t, filepath.Join(root, "cohort", bug.file), bug.old, bug.new)
			output, err := testCohorts(t, root, overlay, "./cohort")
			if err == nil {
				output, err = testCohorts(t, root, overlay, "./internal/test/history")
			}
			switch {
			case err == nil:
				t.Errorf("no test has failed:\n%s", output)
			case !bytes.Contains(output, []byte("--- FAIL: TestCohort")) && !bytes.Contains(output, []byte("panic: ")):
				t.Fatalf("the tests could not be run: %v\n%s", err, output)
			}
		})
	}
}

// testCohorts runs the cohort tests in a package, with an overlay.
func testCohorts(t *testing.T, root, overlay, pkg string) (output []byte, err error) {
	test := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-timeout", "60s", "-run", "TestCohort", pkg)
	test.Dir = root
	test.Env = append(os.Environ(), "DIBS_LONG=0")
	return test.CombinedOutput()
}

// plantBug returns the name of a go test overlay in which a file contains a bug.
func plantBug(t *testing.T, file, old, bug string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), old); n != 1 {
		t.Fatalf("%q stands %d times in %s, want once", old, n, file)
	}
	dir := t.TempDir()
	planted := filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(planted, []byte(strings.Replace(string(text), old, bug, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: planted}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
