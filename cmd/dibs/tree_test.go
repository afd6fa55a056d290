package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// A tree whose command was not started yet has no group: to signal or kill it must not
// reach the group of dibs itself, in which its caller may be.
func TestTreeWithoutACommand(t *testing.T) {
	const inside = "DIBS_TEST_TREE"
	if os.Getenv(inside) != "" {
		tree := tree{root: os.Getpid()}
		tree.kill()
		tree.signal(syscall.SIGTERM)
		tree.signalDescendants(syscall.SIGTERM)
		if !tree.gone(false) || !tree.gone(true) {
			t.Error("something is left of a command that was not started")
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
