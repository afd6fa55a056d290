package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dibslock/dibs/internal/test/spawn"
)

var errNoTwemproxy = errors.New("no nutcracker in PATH")

// RunningProxy returns the address of a running proxy, such as Codis, which proxy tests then use in
// place of others. It is empty unless DIBS_PROXY is set.
func RunningProxy() string { return os.Getenv("DIBS_PROXY") }

// StartTwemproxy starts twemproxy, whose program is nutcracker, in front of some servers,
// and returns its address. It ends with the test. hashTag is its setting hash_tag: "{}", or
// empty to route by the whole key.
//
// Without an installed nutcracker the test is skipped with a message. With
// DIBS_REQUIRE_TWEMPROXY=1 it fails.
func StartTwemproxy(t testing.TB, hashTag string, servers ...*Server) (addr string) {
	t.Helper()
	bin, err := findTwemproxy()
	if err != nil && os.Getenv("DIBS_REQUIRE_TWEMPROXY") != "1" {
		t.Skipf("SKIPPED: %v; `make test` installs it", err)
	}
	for range portTries {
		var p *spawn.Process
		if err == nil {
			p, addr, err = launchTwemproxy(bin, t.TempDir(), hashTag, servers)
		}
		if err == nil {
			t.Cleanup(func() { p.End(syscall.SIGTERM, stopTimeout) })
			return addr
		}
	}
	t.Fatal(err)
	return ""
}

func findTwemproxy() (string, error) {
	if bin, found := spawn.Find("nutcracker"); found {
		return bin, nil
	}
	return "", errNoTwemproxy
}

// launchTwemproxy starts it on two free ports: for clients and for statistics.
func launchTwemproxy(bin, dir, hashTag string, servers []*Server) (p *spawn.Process, addr string, err error) {
	port, err := spawn.FreePort()
	if err != nil {
		return nil, "", err
	}
	stats, err := spawn.FreePort()
	if err != nil {
		return nil, "", err
	}
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	file := filepath.Join(dir, "nutcracker.yml")
	if err := os.WriteFile(file, []byte(twemproxyConfig(addr, hashTag, servers)), 0o600); err != nil {
		return nil, "", err
	}
	p, err = spawn.Start(bin, []string{"-c", file, "-a", "127.0.0.1", "-s", strconv.Itoa(stats)}, filepath.Join(dir, "nutcracker.log"), nil, syscall.SIGKILL)
	if err != nil {
		return nil, "", err
	}
	if err := awaitTwemproxy(p, addr); err != nil {
		p.End(syscall.SIGTERM, stopTimeout)
		log, _ := os.ReadFile(filepath.Join(dir, "nutcracker.log"))
		return nil, "", fmt.Errorf("nutcracker: %w: %s", err, log)
	}
	return p, addr, nil
}

func twemproxyConfig(addr, hashTag string, servers []*Server) string {
	var b strings.Builder
	fmt.Fprintf(&b, "locks:\n  listen: %s\n", addr)
	b.WriteString("  hash: fnv1a_64\n")
	b.WriteString("  redis: true\n")
	b.WriteString("  timeout: 1000\n")
	if hashTag != "" {
		fmt.Fprintf(&b, "  hash_tag: %q\n", hashTag)
	}
	b.WriteString("  servers:\n")
	for _, s := range servers {
		fmt.Fprintf(&b, "   - %s:1\n", s.Addr())
	}
	return b.String()
}

// awaitTwemproxy polls until it answers: there is no event to wait for.
func awaitTwemproxy(p *spawn.Process, addr string) error {
	c := Dial(addr)
	defer c.Close()
	return p.Await(startTimeout, func(ctx context.Context) error {
		_, err := text(ctx, c, "PING")
		return err
	})
}
