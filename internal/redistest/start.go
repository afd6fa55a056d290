package redistest

import (
	"errors"
	"os"
	"testing"
)

// Start starts a server for one test and stops it with the test. See
// [StartServer] for args.
//
// Where no server is installed the test is skipped, loudly; with
// DIBS_REQUIRE_REDIS=1 it fails, so that a build machine cannot pass by having
// tested nothing.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return attend(t, &Server{dir: t.TempDir(), args: args})
}

// StartClusterNode is Start for a cluster of one. See [StartClusterServer].
func StartClusterNode(t testing.TB, args ...string) *Server {
	t.Helper()
	return attend(t, &Server{dir: t.TempDir(), args: args, cluster: true})
}

func attend(t testing.TB, s *Server) *Server {
	t.Helper()
	if _, err := start(s); err != nil {
		giveUp(t, err)
	}
	t.Cleanup(func() {
		s.Stop()
		if log := s.Log(); t.Failed() && log != "" {
			t.Logf("redis-server on %s logged:\n%s", s.Addr(), log)
		}
	})
	return s
}

func giveUp(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrNoServer) && os.Getenv("DIBS_REQUIRE_REDIS") != "1" {
		t.Skipf("SKIPPED: %v; `make test` installs it", err)
	}
	t.Fatal(err)
}

// MustCmd is Cmd for a command that has to succeed.
func (s *Server) MustCmd(t testing.TB, args ...string) any {
	t.Helper()
	value, err := s.Cmd(args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return value
}
