package etcdtest

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

func TestPutAndGet(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	mustPut(t, s, "order", "42")
	wantValue(t, s, "order", "42")
	if !Installed() {
		t.Error("a started server is not installed")
	}
}

// A server should keep its data when it ends, with and without a shutdown.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	for name, end := range map[string]func(){"killed": s.Kill, "stopped": s.Stop} {
		mustPut(t, s, "order", name)
		end()
		if err := put(s, time.Second, "order", "lost"); err == nil {
			t.Errorf("%s: the server replies", name)
		}
		must(t, s.Restart())
		wantValue(t, s, "order", name)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	must(t, s.Pause())
	if err := put(s, 200*time.Millisecond, "order", "42"); err == nil {
		t.Error("a paused server replies")
	}
	must(t, s.Resume())
	mustPut(t, s, "order", "43")
	wantValue(t, s, "order", "43")
}

// Flags of a test should replace those of the package.
func TestFlags(t *testing.T) {
	t.Parallel()
	s := NewServer(t, "--election-timeout=400", "--unsafe-no-fsync=false", "--heartbeat-interval=40")
	mustPut(t, s, "order", "42")
	if _, err := Start("--no-such-flag"); err == nil {
		t.Error("a server started with an unknown flag")
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	if have := processes(t, s.Dir); have != 1 {
		t.Errorf("have %d processes, want 1", have)
	}
	must(t, s.Pause())
	must(t, s.Close())
	wantGone(t, s)
}

func wantGone(t *testing.T, s *Server) {
	t.Helper()
	if have := processes(t, s.Dir); have != 0 {
		t.Errorf("%d processes are left", have)
	}
	if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", s.Dir, err)
	}
}

func wantRefused(t *testing.T, addr string) {
	t.Helper()
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Errorf("%s accepts connections", addr)
	}
}
