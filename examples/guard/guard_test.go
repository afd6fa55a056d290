//go:build unix

package main

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/dibslock/dibs/internal/test/pgtest"
)

// TestMain makes the test binary run as the holder, as the program does.
func TestMain(m *testing.M) {
	if _, holder := os.LookupEnv(holderVariable); holder {
		main()
		return
	}
	os.Exit(m.Run())
}

func start(t *testing.T) (url string) {
	t.Helper()
	server, err := pgtest.Start()
	if errors.Is(err, pgtest.ErrNoServer) && os.Getenv("DIBS_REQUIRE_POSTGRES") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server.URL()
}

func play(t *testing.T, url string, stop bool) string {
	t.Helper()
	var out strings.Builder
	if err := run(t.Context(), url, stop, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}

func TestRun(t *testing.T) {
	url := start(t)
	if have, want := play(t, url, false), " +50   balance 150\n -30   balance 120\n"; have != want {
		t.Errorf("want:\n%shave:\n%s", want, have)
	}
	const want = `without the guard:
  A  reads 100, and is stopped for longer than its TTL
  B  adds 50: balance 150
  A  writes its balance, 70: the 50 of B are lost
  the balance is 70, and should be 120
with the guard:
  A  reads 100, and is stopped for longer than its TTL
  B  adds 50: balance 150
  A  is refused: it has lost its lock, and writes nothing
  A  tries again: balance 120
  the balance is 120, and should be 120
`
	if have := play(t, url, true); have != want {
		t.Errorf("want:\n%shave:\n%s", want, have)
	}
}

func TestNoUpdateIsLost(t *testing.T) {
	const services, moves = 4, 10
	url := start(t)
	var group sync.WaitGroup
	first, closeAll, err := open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll()
	if err := first.reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range services {
		group.Go(func() {
			a, closeAll, err := open(t.Context(), url)
			if err != nil {
				t.Error(err)
				return
			}
			defer closeAll()
			for range moves {
				if _, err := a.add(t.Context(), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if have, err := first.read(t.Context()); err != nil || have != 100+services*moves {
		t.Errorf("want %d, have %d, %v", 100+services*moves, have, err)
	}
}

func TestErrorsShowNoPassword(t *testing.T) {
	for _, url := range []string{"", "redis://localhost", "postgres://ann:s3cret@127.0.0.1:1/db", "postgres://ann:s3/cret@127.0.0.1:1/db"} {
		err := run(t.Context(), url, false, new(strings.Builder))
		if err == nil || strings.Contains(err.Error(), "cret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: have %v, want one line without the password", url, err)
		}
	}
}
