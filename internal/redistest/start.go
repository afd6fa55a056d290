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
	return attend(t, &Server{dir: t.TempDir(), args: args, cluster: true, settle: clusterReady})
}

func attend(t testing.TB, s *Server) *Server {
	t.Helper()
	attendAll(t, s)
	return s
}

func giveUp(t testing.TB, err error) {
	t.Helper()
	missing := errors.Is(err, ErrNoServer) || errors.Is(err, errNoTLS)
	if missing && os.Getenv("DIBS_REQUIRE_REDIS") != "1" {
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

// Long reports whether the tests are to be long: with DIBS_LONG=1.
func Long() bool { return os.Getenv("DIBS_LONG") == "1" }
