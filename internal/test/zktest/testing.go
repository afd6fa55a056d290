package zktest

import (
	"errors"
	"io"
	"os"
	"testing"
)

// NewServer is [Start] for a test or a benchmark, which closes the server. See [SkipOrFail] for an
// error.
func NewServer(t testing.TB, args ...string) *Server {
	t.Helper()
	s, err := Start(args...)
	SkipOrFail(t, err)
	closeAfter(t, s)
	return s
}

// NewCluster is [StartCluster] for a test, which closes the ensemble. See [SkipOrFail] for an error.
func NewCluster(t testing.TB, n int, args ...string) *Cluster {
	t.Helper()
	c, err := StartCluster(n, args...)
	SkipOrFail(t, err)
	closeAfter(t, c)
	return c
}

// SkipOrFail fails a test if err is not nil, or skips it if ZooKeeper is not installed and not
// required.
func SkipOrFail(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrNoServer) && os.Getenv("DIBS_REQUIRE_ZOOKEEPER") == "" {
		t.Skipf("SKIPPED: %v; `scripts/install-server zookeeper` installs both", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func closeAfter(t testing.TB, c io.Closer) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
