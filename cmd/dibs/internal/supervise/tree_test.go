package supervise

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// A tree whose command was not started yet has no process group. Its signals must not
// reach the group of dibs itself, which may include the caller.
func TestTreeWithoutACommand(t *testing.T) {
	const inside = "DIBS_TEST_TREE"
	if os.Getenv(inside) != "" {
		tree := tree{root: os.Getpid()}
		tree.kill()
		tree.signal(syscall.SIGTERM)
		tree.signalDescendants(syscall.SIGTERM)
		if !tree.gone(false) || !tree.gone(true) {
			t.Error("gone = false for a command that was not started")
		}
		return
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), inside+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
