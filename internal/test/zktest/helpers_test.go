package zktest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, args ...string) *Server {
	t.Helper()
	begin := time.Now()
	s := NewServer(t, args...)
	t.Logf("started after %v", time.Since(begin))
	return s
}

func startCluster(t *testing.T, args ...string) *Cluster {
	t.Helper()
	begin := time.Now()
	c := NewCluster(t, 3, args...)
	t.Logf("started after %v", time.Since(begin))
	return c
}

// eventually repeats an attempt until it returns nil. Members do not serve while they elect a leader.
func eventually(t *testing.T, attempt func() error) {
	t.Helper()
	const long = 20 * time.Second
	end := time.Now().Add(long)
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		err := attempt()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v: %v", long, err)
		}
	}
}

// wantMode waits until a server serves in a mode.
func wantMode(t *testing.T, s *Server, want string) {
	t.Helper()
	eventually(t, func() error {
		have, err := s.status()
		if err == nil && have.mode != want {
			err = fmt.Errorf("%s has the mode %s, want %s", s.Endpoint(), have.mode, want)
		}
		return err
	})
}

// wantIdle waits until a server serves no client, but still replies.
func wantIdle(t *testing.T, s *Server) {
	t.Helper()
	eventually(t, func() error {
		have, err := s.status()
		if !errors.Is(err, errNotServing) {
			return fmt.Errorf("%s: have %+v and %s, want %w", s.Endpoint(), have, fmt.Sprint(err), errNotServing)
		}
		return nil
	})
}

// processes returns how many processes have a directory in their arguments.
func processes(t *testing.T, dir string) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("no /proc")
	}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	count := 0
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), dir) {
			count++
		}
	}
	return count
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
