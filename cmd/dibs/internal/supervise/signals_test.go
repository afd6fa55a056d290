package supervise

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// A signal that the caller ignores stays ignored, as with nohup. This test runs in a
// process of its own, whose signals it redirects.
func TestIgnoredSignals(t *testing.T) {
	const inside = "DIBS_TEST_SIGNALS"
	if os.Getenv(inside) == "" {
		c := exec.Command("sh", "-c", `trap "" HUP; exec "$0" "-test.run=^$1$"`, os.Args[0], t.Name())
		c.Env = append(os.Environ(), inside+"=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	caught := CatchSignals()
	for _, s := range []syscall.Signal{syscall.SIGPIPE, syscall.SIGHUP, syscall.SIGUSR1} {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	if s := <-caught; s != syscall.SIGUSR1 {
		t.Errorf("caught %v, want USR1 only", s)
	}
}
