package zktest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The package should find the version that the script downloads.
func TestVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../scripts/zookeeper/pom.xml")
	must(t, err)
	if !strings.Contains(string(text), "<version>"+version+"</version>") {
		t.Errorf("scripts/zookeeper/pom.xml does not require %s", version)
	}
}

// Curator should be beside ZooKeeper.
func TestJars(t *testing.T) {
	t.Parallel()
	folder, ok := Jars()
	if !ok {
		SkipOrFail(t, ErrNoServer)
	}
	for _, name := range []string{"zookeeper", "curator-recipes"} {
		if found, err := filepath.Glob(filepath.Join(folder, name+"-*.jar")); len(found) == 0 {
			t.Errorf("no jar of %s in %s: %v", name, folder, err)
		}
	}
}

// Without a server, tests should be skipped. With a false folder they should fail.
func TestNotInstalled(t *testing.T) {
	if !Installed() {
		SkipOrFail(t, ErrNoServer)
	}
	t.Setenv("DIBS_ZOOKEEPER", t.TempDir())
	if _, err := Start(); err == nil || errors.Is(err, ErrNoServer) {
		t.Errorf("have %v, want that the program does not exist", err)
	}
	t.Setenv("DIBS_ZOOKEEPER", "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if Installed() {
		t.Error("ZooKeeper is installed in an empty folder")
	}
	if _, err := Start(); !errors.Is(err, ErrNoServer) {
		t.Errorf("have %v, want %v", err, ErrNoServer)
	}
	if _, err := StartCluster(3); !errors.Is(err, ErrNoServer) {
		t.Errorf("have %v, want %v", err, ErrNoServer)
	}
}
