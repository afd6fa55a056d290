package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/internal/test/redistest"
)

// TestMain makes the test binary run as a worker process, as the program does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerArg {
		main()
		return
	}
	os.Exit(m.Run())
}

var smallSize = demoSize{
	Teams: 3, Workers: 2, Deposits: 20,
	Stock: 10, Buyers: 4, PerBuyer: 3,
	QueueTime: 200 * time.Millisecond,
	TTL:       3 * time.Second, // its margin exceeds a busy machine's delays
}

// noEnv is an empty environment.
func noEnv(string) string { return "" }

func TestOnMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		seen, err := runDemo(t.Context(), "", smallSize, newPrinter(&out, noEnv))
		if err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		// In the synctest bubble, all workers read before the first write.
		checkUnlocked(t, seen)
		checkLocked(t, seen)
		checkPrinted(t, out.String())
	})
}

func TestOnRedis(t *testing.T) {
	s := redistest.Start(t, "--requirepass", "s3cret")
	url := "redis://:s3cret@" + s.Addr()
	for try := 1; ; try++ {
		var out bytes.Buffer
		seen, err := runDemo(t.Context(), url, smallSize, newPrinter(&out, noEnv))
		if err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		checkLocked(t, seen)
		checkPrinted(t, out.String())
		checkClean(t, s)
		if seen.deposits.lost() > 0 && seen.items.oversold() > 0 || try == 3 {
			checkUnlocked(t, seen) // three runs without a lost update are too unlikely
			return
		}
	}
}

func TestOnCluster(t *testing.T) {
	s := redistest.StartClusterNode(t)
	var out bytes.Buffer
	seen, err := runDemo(t.Context(), "redis+cluster://"+s.Addr(), smallSize, newPrinter(&out, noEnv))
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	checkLocked(t, seen)
	checkPrinted(t, out.String())
	checkClean(t, s)
	if keys := s.MustCmd(t, "KEYS", "*").([]any); len(keys) != 1 {
		t.Errorf("want one key of dibs left, have %q", keys)
	}
}

func checkUnlocked(t *testing.T, seen outcome) {
	t.Helper()
	if lost := seen.deposits.lost(); lost <= 0 {
		t.Errorf("without a lock: want lost deposits, have %d", lost)
	}
	if over := seen.items.oversold(); over <= 0 {
		t.Errorf("without a lock: want oversold items, have %d", over)
	}
}

func checkLocked(t *testing.T, seen outcome) {
	t.Helper()
	if lost := seen.lockedDeposits.lost(); lost != 0 {
		t.Errorf("want no lost deposits, have %d", lost)
	}
	if over := seen.lockedItems.oversold(); over != 0 {
		t.Errorf("want no oversold items, have %d", over)
	}
	if sold := seen.lockedItems.sold; sold != smallSize.Stock {
		t.Errorf("want all %d items sold, have %d", smallSize.Stock, sold)
	}
	if h := seen.handoffs; h.count == 0 || h.outOfOrder != 0 {
		t.Errorf("want hand-offs in order, have %d, and %d out of order", h.count, h.outOfOrder)
	}
	if s := seen.stall; s.lead() <= 0 || !s.rejected {
		t.Errorf("want A notified before B acquires, and its late write rejected, have %+v", s)
	}
}

func checkPrinted(t *testing.T, text string) {
	t.Helper()
	if strings.Contains(text, "\x1b") {
		t.Error("want no colour if the output is not a terminal")
	}
	for line := range strings.Lines(text) {
		if n := runes(strings.TrimRight(line, "\n")); n > runes(indent)+width {
			t.Errorf("want lines of %d at most, have %d: %q", runes(indent)+width, n, line)
		}
	}
}

// checkClean checks that the demo left no keys behind.
func checkClean(t *testing.T, s *redistest.Server) {
	t.Helper()
	if keys := s.MustCmd(t, "KEYS", "dibs:demo:*").([]any); len(keys) > 0 {
		t.Errorf("want no keys left, have %q", keys)
	}
}

// A cancelOnText is a writer that cancels a context when a text is written.
type cancelOnText struct {
	at   string
	stop context.CancelFunc
}

func (s cancelOnText) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.at) {
		s.stop()
	}
	return len(p), nil
}

func TestStopCleansUp(t *testing.T) {
	s := redistest.Start(t)
	for _, at := range []string{"without a lock", "stalls"} {
		ctx, stop := context.WithCancel(t.Context())
		_, err := runDemo(ctx, s.URL(), smallSize, newPrinter(cancelOnText{at, stop}, noEnv))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("stopped at %q: want context.Canceled, have %v", at, err)
		}
		checkClean(t, s)
		stop()
	}
}

func TestBadURL(t *testing.T) {
	for _, url := range []string{"redis://:s3cret@127.0.0.1:1", "http://:s3cret@127.0.0.1", "redis://:s3/cret@127.0.0.1"} {
		env := func(name string) string { return map[string]string{"DIBS_URL": url}[name] }
		var out bytes.Buffer
		err := run(t.Context(), nil, env, &out)
		if err == nil {
			t.Errorf("%s: want an error", url)
			continue
		}
		if text := err.Error() + out.String(); strings.Contains(text, "s3") || strings.Contains(text, "\n") {
			t.Errorf("%s: want one line without the password, have %q", url, text)
		}
	}
}

func TestRejectsArguments(t *testing.T) {
	if err := run(t.Context(), []string{"--help"}, noEnv, &bytes.Buffer{}); err == nil {
		t.Error("want an error")
	}
}

func TestSummarize(t *testing.T) {
	// Tickets 1, 2 and 3, with 2 granted last, and a grant without queueing.
	reports := []report{
		{Turns: []turnTimes{{Fence: 10, Requested: 0, Acquired: 1, Released: 5}, {Ticket: 1, Fence: 11, Requested: 2, Acquired: 8, Released: 9}}},
		{Turns: []turnTimes{{Ticket: 2, Fence: 13, Requested: 3, Acquired: 20, Released: 21}, {Ticket: 3, Fence: 12, Requested: 4, Acquired: 10, Released: 11}}},
	}
	want := handoffResult{count: 3, median: 3, p99: 9, longest: 17, outOfOrder: 1, most: 2, fewest: 2}
	if have := summarize(reports, 1); have != want {
		t.Errorf("want %+v, have %+v", want, have)
	}
}

func TestViolations(t *testing.T) {
	seen := outcome{
		lockedDeposits: depositResult{expected: 2, actual: 1},
		lockedItems:    itemResult{stock: 1, sold: 2},
		handoffs:       handoffResult{outOfOrder: 1},
		stall:          stallResult{notified: 2, entered: 1},
	}
	const promises = 5
	if broken := seen.violations(); len(broken) != promises {
		t.Errorf("want all %d, have %q", promises, broken)
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                       "0 µs",
		42300:                   "42 µs",
		1500 * time.Microsecond: "1.5 ms",
		-2 * time.Millisecond:   "-2.0 ms",
		250 * time.Millisecond:  "250 ms",
		2 * time.Second:         "2 s",
		1234 * time.Millisecond: "1.23 s",
	} {
		if have := span(d).text; have != want {
			t.Errorf("%v: want %s, have %s", d, want, have)
		}
	}
}

func TestColour(t *testing.T) {
	var out bytes.Buffer
	p := &printer{out: &out, colour: true}
	p.row("x", count(1).markBad(true))
	if !strings.Contains(out.String(), "\x1b[31m") || !strings.HasSuffix(out.String(), "\x1b[0m\n") {
		t.Errorf("want red and a reset at the end, have %q", out.String())
	}
	for name, value := range map[string]string{"NO_COLOR": "1", "TERM": "dumb"} {
		env := func(key string) string { return map[string]string{name: value}[key] }
		if newPrinter(os.Stdout, env).colour {
			t.Errorf("%s=%s: want no colour", name, value)
		}
	}
}
