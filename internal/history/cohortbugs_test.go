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

// cohortBugs are bugs in the code of cohorts: old is replaced by new.
var cohortBugs = []struct{ name, file, old, new string }{
	{"two holders", "cohort.go", "case co.holder != nil || co.grantee != nil:", "case co.grantee != nil:"},
	{"a fence twice", "fenceblock.go", "	b.last++\n	return b.last", "	if b.last++; b.last%7 == 0 {\n		return b.last - 1\n	}\n	return b.last"},
	{"fences of others", "fenceblock.go", "b.end = max(b.end, end)", "b.end = max(b.end, end) + 50"},
	{"endless passes", "cohort.go", "		co.left--\n", ""},
	{"a pass of an expired lease", "cohortlease.go", "return h.err == nil && now < h.deadline", "return h.err == nil"},
	{"the holder is not notified of a loss", "cohort.go", "		local.endWith(store)\n", "		_ = local\n"},
	{"a lost lease is passed on", "cohort.go", "		co.holder = nil\n		if co.store == store {\n			co.store = nil\n		}\n	})", "		co.holder = nil\n	})"},
	{"last come, first served", "cohortcaller.go", "	co.callers.add(q)\n", "	co.callers.addFirst(q)\n"},
	{"a queue entry without callers", "cohort.go", "		co.acquiring.cancel()\n", "		_ = co.acquiring\n"},
	{"linger while others wait", "cohort.go", "next == nil && (wanted || co.key.linger == 0)", "next == nil && (co.key.linger == 0 || wanted && false)"},
	{"linger ends a lease in use", "cohortlease.go", "return idle && left <= 0", "return left <= 0"},
	{"a tenure without end", "cohort.go", "now-co.since >= max(longestTenure, co.key.linger)", "now-co.since >= 1000*max(longestTenure, co.key.linger)"},
	{"fences ahead of the clock", "cohort.go", "return int64(co.served) > (co.c.clock.now()-co.since).Microseconds()+fewFences", "return true"},
	{"a call that gave up holds", "cohortcaller.go", "	h := co.receive(q, now)\n	if h != nil || q.err != nil {", "	var h *lease\n	if q.ctx.Err() == nil && !overdue {\n		h = co.receive(q, now)\n	}\n	if h != nil || q.err != nil {"},
}

// The tests of cohorts find each planted bug. Each takes a run of these tests, so this is a
// long test.
func TestPlantedCohortBugsAreFound(t *testing.T) {
	if os.Getenv("DIBS_LONG") != "1" {
		t.Skip("a long test: DIBS_LONG=1 runs it")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, bug := range cohortBugs {
		t.Run(bug.name, func(t *testing.T) {
			overlay := plantBug(t, filepath.Join(root, bug.file), bug.old, bug.new)
			test := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-timeout", "60s", "-run", "TestCohort", ".", "./internal/history")
			test.Dir = root
			test.Env = append(os.Environ(), "DIBS_LONG=0")
			output, err := test.CombinedOutput()
			switch {
			case err == nil:
				t.Errorf("no test has failed:\n%s", output)
			case !bytes.Contains(output, []byte("--- FAIL: TestCohort")) && !bytes.Contains(output, []byte("panic: ")):
				t.Fatalf("the tests could not be run: %v\n%s", err, output)
			}
		})
	}
}

// plantBug returns the name of an overlay for go test in which a file has a bug.
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
