package zktest

import (
	"strings"
	"testing"
)

func TestStart(t *testing.T) {
	t.Parallel()
	s := start(t)
	wantMode(t, s, "standalone")
	wantSetting(t, s, "tickTime=500")
	wantSetting(t, s, "minSessionTimeout=1000")
	if text, err := s.Command("ruok"); err != nil || text != "imok" {
		t.Errorf("have %q and %v", text, err)
	}
	if !Installed() {
		t.Error("a started server is not installed")
	}
}

func wantSetting(t *testing.T, s *Server, want string) {
	t.Helper()
	text, err := s.Command("conf")
	must(t, err)
	if !strings.Contains(text, want+"\n") {
		t.Errorf("the settings have no %s:\n%s", want, text)
	}
}

// Settings and flags of a test should replace those of the package.
func TestArguments(t *testing.T) {
	t.Parallel()
	s := start(t, "tickTime=2000", "-Duser.name=somebody")
	wantSetting(t, s, "tickTime=2000")
	text, err := s.Command("envi")
	must(t, err)
	if !strings.Contains(text, "user.name=somebody\n") {
		t.Errorf("Java ignores a flag:\n%s", text)
	}
	if _, err := Start("-XX:NoSuchFlag"); err == nil {
		t.Error("a server started with an unknown flag")
	}
}

// A server should start again after its end, with and without a shutdown.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, end := range map[string]func(){"killed": s.Kill, "stopped": s.Stop} {
		end()
		if _, err := s.Command("ruok"); err == nil {
			t.Errorf("%s: the server replies", name)
		}
		must(t, s.Restart())
		wantMode(t, s, "standalone")
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	s := start(t)
	must(t, s.Pause())
	if _, err := s.Command("ruok"); err == nil {
		t.Error("a paused server replies")
	}
	must(t, s.Resume())
	wantMode(t, s, "standalone")
}

func TestClose(t *testing.T) {
	t.Parallel()
	s := start(t)
	if have := processes(t, s.Dir); have != 1 {
		t.Errorf("have %d processes, want 1", have)
	}
	must(t, s.Pause())
	must(t, s.Close())
	wantGone(t, s)
}
