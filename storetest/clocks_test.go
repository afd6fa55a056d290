//go:build unix

package storetest_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/storetest"
)

// systemClock returns the machine's time, even in a testing/synctest bubble.
func systemClock() time.Time {
	var now syscall.Timeval
	_ = syscall.Gettimeofday(&now)
	return time.Unix(now.Unix())
}

// A single clock counts for all clients, whatever their own clocks.
func TestOneClock(t *testing.T) {
	store := memstore.New(memstore.Clock(systemClock))
	storetest.RunClocks(t, func(*testing.T) driver.Store { return store })
}

// If each client uses its own clock, the store passes all cases with a single clock. It fails the
// cases with two clocks, except for its fences: they never decrease.
func TestAClockForEachClientIsFound(t *testing.T) {
	storetest.RunSynctest(t, func(*testing.T) driver.Store { return clockForEachClient() })
	for _, c := range storetest.ClockCases() {
		fails := c.Name != "clocks and fences"
		if output, failed := runFailing(t, "TestClockForEachClient/"+c.Name); failed != fails {
			t.Errorf("%s: failed %v, want %v\n%s", c.Name, failed, fails, output)
		}
	}
}

// clockForEachClient returns a store for all clients: in a bubble, its clock is the bubble's.
func clockForEachClient() *memstore.Store { return memstore.New() }

func TestClockForEachClient(t *testing.T) {
	skipUnlessFailing(t)
	store := clockForEachClient()
	storetest.RunClocks(t, func(*testing.T) driver.Store { return store })
}

// failing is set in runFailing's processes.
const failing = "DIBS_TEST_FAILING"

// runFailing runs a test that may fail, in a separate process.
func runFailing(t *testing.T, name string) (output string, failed bool) {
	t.Helper()
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		parts = append(parts, "^"+strings.ReplaceAll(part, " ", "_")+"$")
	}
	test := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run", strings.Join(parts, "/"))
	test.Env = append(os.Environ(), failing+"=1")
	text, err := test.CombinedOutput()
	output = string(text)
	if result := "--- FAIL: "; err != nil && !strings.Contains(output, result) || err == nil && !strings.Contains(output, "--- PASS: ") {
		t.Fatalf("%s could not be run: %v\n%s", name, err, output)
	}
	return output, err != nil
}

func skipUnlessFailing(t *testing.T) {
	t.Helper()
	if os.Getenv(failing) == "" {
		t.Skip("other tests run this one, and see it fail")
	}
}
