package supervise

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// testTimeout limits each wait in a test.
const testTimeout = time.Minute

// inOwnProcess reports whether the test runs in its own process and process group. If not, it runs
// the test in such a process, with this command before its flags.
func inOwnProcess(t *testing.T, command ...string) bool {
	t.Helper()
	const inside = "DIBS_TEST_OWN_PROCESS"
	if os.Getenv(inside) != "" {
		return true
	}
	c := exec.Command(command[0], append(command[1:], "-test.run=^"+t.Name()+"$")...)
	c.Env = append(os.Environ(), inside+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return false
}
