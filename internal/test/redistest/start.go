package redistest

import (
	"errors"
	"os"
	"testing"
)

// Start starts a server for a test and stops it with the test. See [StartServer] for args.
//
// Without an installed server the test is skipped with a message. With DIBS_REQUIRE_REDIS=1 it
// fails, so a CI machine cannot pass without testing.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return startOne(t, &Server{dir: t.TempDir(), args: args})
}

// StartClusterNode is Start for a single-node cluster. See [StartClusterServer].
func StartClusterNode(t testing.TB, args ...string) *Server {
	t.Helper()
	return startOne(t, &Server{dir: t.TempDir(), args: args, cluster: true, afterStart: clusterReady})
}

func startOne(t testing.TB, s *Server) *Server {
	t.Helper()
	startAll(t, s)
	return s
}

func skipOrFail(t testing.TB, err error) {
	t.Helper()
	required := os.Getenv("DIBS_REQUIRE_REDIS") == "1"
	if errors.Is(err, errNoTLS) && os.Getenv(serverVariable) != "" {
		required = false // the chosen server is built without it
	}
	if missing := errors.Is(err, ErrNoServer) || errors.Is(err, errNoTLS); missing && !required {
		t.Skipf("SKIPPED: %v; `make test` installs it", err)
	}
	t.Fatal(err)
}

// MustCmd is Cmd for a command expected to succeed.
func (s *Server) MustCmd(t testing.TB, args ...string) any {
	t.Helper()
	value, err := s.Cmd(args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return value
}

// Long reports whether the long tests are enabled (DIBS_LONG=1).
func Long() bool { return os.Getenv("DIBS_LONG") == "1" }

// SkipBefore7 skips a test if it needs features of Redis 7, such as sharded channels.
func SkipBefore7(t testing.TB, s *Server) {
	t.Helper()
	if s.Before7() {
		t.Skipf("%s is older than Redis 7", s.bin)
	}
}
