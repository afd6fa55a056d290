package main

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dibslock/dibs/internal/redistest"
)

// TestMain lets the test binary be the process that finishes, as the program is.
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
		// The fourth try: at 0, 100 and 200 ms it is held, until 250 ms.
		if !strings.Contains(out, "second:   has it, after 300ms\n") {
			t.Errorf("want it at the fourth try, have:\n%s", out)
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
	if want := "first:    was given back by the finisher\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("want %q at last, have:\n%s", want, out.String())
	}
	return out.String()
}
