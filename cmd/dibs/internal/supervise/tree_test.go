package supervise

import (
	"os"
	"syscall"
	"testing"
)

// A tree without a started command has no process group. Its signals do not reach the group of
// dibs itself, which may include the caller.
func TestTreeWithoutACommand(t *testing.T) {
	if !inOwnProcess(t, os.Args[0]) {
		return
	}
	tree := tree{root: os.Getpid()}
	tree.kill()
	tree.signal(syscall.SIGTERM)
	tree.signalDescendants(syscall.SIGTERM)
	if r := (reaper{tree: &tree}); r.left() != leftNothing {
		t.Error("something is left of a command that was not started")
	}
}
