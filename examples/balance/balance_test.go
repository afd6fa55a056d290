package main

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/memstore"
)

const printed = `  +50   balance 150
  -30   balance 120
 -500   insufficient funds, balance 120
`

func TestRun(t *testing.T) { checkRun(t, "") }

func TestRunOnRedis(t *testing.T) { checkRun(t, redistest.Start(t).URL()) }

func TestRunOnPostgres(t *testing.T) {
	server, err := pgtest.Start()
	if errors.Is(err, pgtest.ErrNoServer) && os.Getenv("DIBS_REQUIRE_POSTGRES") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	checkRun(t, server.URL())
}

func checkRun(t *testing.T, url string) {
	t.Helper()
	var out strings.Builder
	if err := run(t.Context(), url, &out); err != nil {
		t.Fatal(err)
	}
	if have := out.String(); have != printed {
		t.Errorf("want:\n%shave:\n%s", printed, have)
	}
}

func TestNoUpdateIsLost(t *testing.T) {
	const services, moves = 8, 25
	store := memstore.New()
	shared := &accounts{balance: map[string]int64{}}
	var group sync.WaitGroup
	for range services {
		group.Go(func() {
			locks := dibs.New(store)
			defer locks.Close()
			b := &accountService{locks: locks, accounts: shared}
			for range moves {
				if _, err := b.move(t.Context(), "7", 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if have := shared.read("7"); have != services*moves {
		t.Errorf("want %d, have %d", services*moves, have)
	}
}
