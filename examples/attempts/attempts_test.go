package main

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dibslock/dibs/internal/test/redistest"
)

// TestMain makes the test binary run as the finisher, as the program does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == finishArg {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTwoClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := play(t, "")
		// The lock is held until 250 ms: the attempts at 0, 100 and 200 ms fail.
		if !strings.Contains(out, "second:   acquired it after 300ms\n") {
			t.Errorf("want the lock at the fourth attempt, have:\n%s", out)
		}
	})
}

func TestTwoProcesses(t *testing.T) {
	play(t, redistest.Start(t).URL())
}

func play(t *testing.T, url string) string {
	t.Helper()
	var out strings.Builder
	if err := run(t.Context(), nil, url, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if want := "first:    released by the finisher\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("want %q at the end, have:\n%s", want, out.String())
	}
	return out.String()
}
