package etcdtest

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The package should find the version that the script builds.
func TestVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../scripts/etcd/go.mod")
	must(t, err)
	if want := "go.etcd.io/etcd/server/v3 v" + Version + "\n"; !strings.Contains(string(text), want) {
		t.Errorf("scripts/etcd/go.mod does not require %s", want)
	}
}

func TestCtl(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	ctl, ok := Ctl()
	if !ok {
		t.Skip("SKIPPED: etcdctl is not installed")
	}
	out, err := exec.Command(ctl, "--endpoints="+s.Endpoint(), "put", "order", "42").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wantValue(t, s, "order", "42")
}

// Without a server, tests should be skipped. With a false folder they should fail.
func TestNotInstalled(t *testing.T) {
	t.Setenv("DIBS_ETCD", t.TempDir())
	if _, err := Start(); err == nil || errors.Is(err, ErrNoServer) {
		t.Errorf("have %v, want that the program does not exist", err)
	}
	t.Setenv("DIBS_ETCD", "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	if Installed() {
		t.Skip("etcd is in a directory for daemons")
	}
	if _, err := Start(); !errors.Is(err, ErrNoServer) {
		t.Errorf("have %v, want %v", err, ErrNoServer)
	}
	if _, err := StartCluster(3); !errors.Is(err, ErrNoServer) {
		t.Errorf("have %v, want %v", err, ErrNoServer)
	}
}
