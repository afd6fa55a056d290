package pgtest

import (
	"errors"
	"os"
	"testing"
)

// A killed server loses no commit.
func TestServer(t *testing.T) {
	s, err := Start()
	if errors.Is(err, ErrNoServer) && os.Getenv("DIBS_REQUIRE_POSTGRES") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	s.Kill()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
}
