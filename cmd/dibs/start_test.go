//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
)

// initialised runs dibs and returns its initialised packages, each with the bytes allocated in this
// step.
func initialised(t *testing.T, args ...string) map[string]int {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	c.Args[0] = "dibs"
	c.Env = append(os.Environ(), "GODEBUG=inittrace=1", noRaceSleep)
	text, _ := c.CombinedOutput() // the watchdog fails without its files
	all := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		var name string
		var at, took float64
		var bytes int
		if n, _ := fmt.Sscanf(line, "init %s @%f ms, %f ms clock, %d bytes", &name, &at, &took, &bytes); n == 4 {
			all[name] = bytes
		}
	}
	if len(all) == 0 {
		t.Fatalf("no trace: %s", text)
	}
	return all
}

// Each start of dibs, and of each program with a store, pays for package initialisation: regular
// expressions and tables must be made when they are first used.
func TestPackagesAreInitialisedCheaply(t *testing.T) {
	t.Parallel()
	const own, others, descriptors = 5_000, 40_000, 200_000
	for name, bytes := range initialised(t, "version") {
		if name == "github.com/dibslock/dibs/cmd/dibs" {
			continue // with its tests' variables
		}
		ours := strings.HasPrefix(name, "github.com/dibslock/dibs")
		if bytes <= descriptors && isProtobuf(name) {
			continue // etcd's client registers its messages in package initialisation
		}
		if bytes > others || ours && bytes > own && !strings.HasSuffix(name, "test") {
			t.Errorf("%s allocates %d bytes", name, bytes)
		}
	}
}

func isProtobuf(name string) bool {
	return strings.HasPrefix(name, "google.golang.org/") || strings.HasPrefix(name, "go.etcd.io/etcd/api/")
}

// Each run waits for its watchdog process, which uses no store.
func TestWatchdogInitialisesNoStore(t *testing.T) {
	t.Parallel()
	all := initialised(t, supervise.WatchdogArg)
	for _, store := range []string{"modernc.org/sqlite/lib", "modernc.org/libc", "net/http", "github.com/redis/go-redis/v9", "github.com/dibslock/dibs/pgstore", "go.etcd.io/etcd/api/v3/etcdserverpb"} {
		if _, ok := all[store]; ok {
			t.Errorf("%s is initialised", store)
		}
	}
}
