package supervise

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// A signal that the caller ignores stays ignored, as with nohup. This test redirects signals, so
// it runs in its own process.
func TestIgnoredSignals(t *testing.T) {
	if !inOwnProcess(t, "sh", "-c", `trap "" HUP; exec "$0" "$@"`, os.Args[0]) {
		return
	}
	caught := CatchSignals()
	for _, s := range []syscall.Signal{syscall.SIGPIPE, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGTERM} {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case s := <-caught:
		if s != syscall.SIGTERM {
			t.Errorf("caught %v, want TERM only", s)
		}
	case <-time.After(testTimeout):
		t.Error("TERM was not caught")
	}
}

// A harmless signal must not end this process, even before CatchSignals. This test also runs in
// its own process.
func TestHarmlessSignals(t *testing.T) {
	if !inOwnProcess(t, os.Args[0]) {
		return
	}
	caught := CatchSignals()
	sent := 0
	for s := syscall.Signal(1); s <= 64; s++ {
		if harmless(s) && forwarded(s) && syscall.Kill(os.Getpid(), s) == nil {
			sent++
		}
	}
	if sent == 0 {
		t.Error("no signal is harmless")
	}
	catchHarmlessSignals(caught)
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	limit := time.After(testTimeout)
	for {
		select {
		case s := <-caught: // an earlier signal may arrive late
			if s == syscall.SIGUSR1 {
				return
			}
		case <-limit:
			t.Fatal("USR1 was not caught")
		}
	}
}
