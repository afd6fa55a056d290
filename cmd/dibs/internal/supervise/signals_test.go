package supervise

import (
	"os"
	"syscall"
	"testing"
)

// A signal that the caller ignores stays ignored, as with nohup. This test runs in a
// process of its own, whose signals it redirects.
func TestIgnoredSignals(t *testing.T) {
	if !inOwnProcess(t, "sh", "-c", `trap "" HUP; exec "$0" "$@"`, os.Args[0]) {
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
