package supervise

import (
	"os"
	"testing"
	"time"
)

// testTimeout is the time limit for anything that a test waits for.
const testTimeout = time.Minute

// TestMain makes the test binary run as the watchdog process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == WatchdogArg {
		os.Exit(RunWatchdog(os.Args[2:]))
	}
	os.Exit(m.Run())
}
