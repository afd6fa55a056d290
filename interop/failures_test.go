//go:build unix

package interop

import (
	"os/exec"
	"strings"
	"testing"
)

// The end of a log should contain the failed tests with their messages, and no other test.
func TestFailuresAreAtTheEnd(t *testing.T) {
	t.Parallel()
	const (
		log = `=== RUN   TestMatrix
=== RUN   TestMatrix/one
=== RUN   TestMatrix/two,_in_its_mode
=== NAME  TestMatrix/one
    load_test.go:42: one's turns
=== NAME  TestMatrix/two,_in_its_mode
    load_test.go:94: a worker got no turn
=== NAME  TestMatrix/one
    load_test.go:42: one's waits
=== NAME  TestMatrix/two,_in_its_mode
        in 10 s
--- FAIL: TestMatrix (3.00s)
    --- PASS: TestMatrix/one (1.00s)
    --- FAIL: TestMatrix/two,_in_its_mode (2.00s)
FAIL
`
		want = `
Failed tests:
TestMatrix
TestMatrix/two,_in_its_mode
    load_test.go:94: a worker got no turn
        in 10 s
`
	)
	filter := exec.CommandContext(t.Context(), "../scripts/failures")
	filter.Stdin = strings.NewReader(log)
	out, err := filter.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	all, end, _ := strings.Cut(string(out), "FAIL\n")
	if end != want || strings.Contains(all, "===") || !strings.Contains(all, "one's turns") {
		t.Errorf("the output is\n%s\nwant its end to be\n%s", out, want)
	}
}
