package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

func TestSafe(t *testing.T) {
	for text, want := range map[string]string{
		"order:42":      "order:42",
		"größe 世界":      "größe 世界",
		`C:\x`:          `C:\x`,
		"a\x1b[2J":      `"a\x1b[2J"`,
		"a\nb\tc\r":     `"a\nb\tc\r"`,
		"\u009b31m":     `"\u009b31m"`,
		"\u202egnp.exe": `"\u202egnp.exe"`,
		"\xff\xfe":      `"\xff\xfe"`,
		"a\x7f":         `"a\x7f"`,
	} {
		if have := safe(text); have != want {
			t.Errorf("%q: want %s, have %s", text, want, have)
		}
	}
}

func TestPrintLine(t *testing.T) {
	var out bytes.Buffer
	if err := printLine(&out, "a\x1b\u009b\u202e\U000e0001é<\n"); err != nil {
		t.Fatal(err)
	}
	const want = `"a\u001b\u009b\u202e\udb40\udc01é\u003c\n"` + "\n"
	if out.String() != want {
		t.Errorf("want %s, have %s", want, out.String())
	}
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1:                             "never",
		0:                              "0ms",
		999 * time.Millisecond:         "999ms",
		9990 * time.Millisecond:        "9.9s",
		59999 * time.Millisecond:       "59s",
		3*time.Minute + 7*time.Second:  "3m07s",
		4*time.Hour + 12*time.Minute:   "4h12m",
		49*time.Hour + 59*time.Minute:  "2d01h",
		1000*24*time.Hour + time.Hour:  "1000d01h",
		time.Hour - time.Nanosecond:    "59m59s",
		24*time.Hour - time.Nanosecond: "23h59m",
	} {
		if have := brief(d); have != want {
			t.Errorf("%v: want %s, have %s", d, want, have)
		}
	}
}

func TestOwnerOf(t *testing.T) {
	const random, secret = "AAAABBBBCCCCDDDD", "ABCDEFGHIJKLMNOPQRSTUVWX"
	for token, want := range map[string]owner{
		"web-1:42:" + random + ":1z":                 {host: "web-1", pid: 42, short: "web-1:42:…"},
		"web-1:42:" + random + ":1z:a:b":             {host: "web-1", pid: 42, label: "a:b", short: "web-1:42:…"},
		"web-1:42:" + random + ":" + secret:          {host: "web-1", pid: 42, short: "web-1:42:…"},
		"web-1:42:" + random + ":" + secret + ":a:b": {host: "web-1", pid: 42, label: "a:b", short: "web-1:42:…"},
		"web-1:42:" + random + ":" + secret + ":x":   {host: "web-1", pid: 42, label: "x", short: "web-1:42:…"},
		"a:secret:that:has:colons:of:its:own":        {short: "a:secret…"},
		"1":                                          {short: "1"},
		"sesame":                                     {short: "ses…"},
	} {
		if have := ownerOf(token); have != want {
			t.Errorf("%s: want %+v, have %+v", token, want, have)
		}
	}
}

func TestSinceOf(t *testing.T) {
	now := time.Now()
	for fence, want := range map[uint64]time.Time{
		0:                                       {},
		7:                                       {},
		1 << 63:                                 {},
		uint64(now.UnixMicro()):                 now.UTC().Truncate(time.Millisecond),
		uint64(now.Add(time.Hour).UnixMicro()):  {}, // the clock is, or was, ahead
		uint64(now.Add(-time.Hour).UnixMicro()): now.Add(-time.Hour).UTC().Truncate(time.Millisecond),
	} {
		if have := sinceOf(fence); !have.Equal(want) {
			t.Errorf("%d: want %v, have %v", fence, want, have)
		}
	}
}

func TestKindOf(t *testing.T) {
	for want, weights := range map[string][]int{"": {}, kindMutex: {0}, kindShared: {1, 1}, kindPermits: {1, 3, 1}} {
		var holders []dibs.Holder
		for _, w := range weights {
			holders = append(holders, dibs.Holder{Weight: w})
		}
		if have := kindOf(holders); have != want {
			t.Errorf("%v: want %q, have %q", weights, want, have)
		}
	}
}

func TestText(t *testing.T) {
	ms := func(n int64) *int64 { return &n }
	n := nameState{
		Name: "gpu", State: "held", Kind: kindPermits, Holding: 150, Waiting: 200,
		Holders: []holder{{Token: "t…", Host: "a", PID: 1, Weight: 2, Fence: 7, TTL: ms(2500)}},
		Waiters: []waiter{{Token: "u…", Host: "b", PID: 2, Label: "x", Position: 1, Waited: 61000}},
	}
	const want = `gpu is held: permits, by 150 holders (1 of them shown)
HOLDER  TTL   HELD  WEIGHT  FENCE
a:1     2.5s  -     2       7

200 waiters in queue order (1 of them shown)
#  WAITER   WAITED
1  b:2 (x)  1m01s
`
	if have := n.text(0); have != want {
		t.Errorf("want\n%s\nhave\n%s", want, have)
	}
	if have := n.holderSummary(); have != "a:1 and 149 more" {
		t.Errorf("want the first holder and the number of others, have %s", have)
	}
}

// heldBy returns the state of a name with one exclusive holder.
func heldBy(token string, left time.Duration) dibs.State {
	return dibs.State{Name: "n", Holders: []dibs.Holder{{Token: token, Remaining: left}}, Holding: 1}
}

func (w *watcher) lines(t *testing.T, at time.Time, states ...dibs.State) string {
	t.Helper()
	var out bytes.Buffer
	for _, s := range w.update(states, nil, at, at) {
		if s.Schema != schema || !s.Time.Equal(at.UTC().Truncate(time.Millisecond)) {
			t.Errorf("want schema and time, have %+v", s)
		}
		s.write(&out, 0)
	}
	text := strings.ReplaceAll(out.String(), at.Local().Format("15:04:05.000")+"  ", "")
	return regexp.MustCompile(" +").ReplaceAllString(text, " ")
}

// A slow poll does not make an expiry look like a release.
func TestWatcherSeesAnExpiryBetweenSlowPolls(t *testing.T) {
	w, begin := watcher{began: true}, time.Now()
	w.update([]dibs.State{heldBy("t", 30*time.Millisecond)}, nil, begin, begin.Add(40*time.Millisecond))
	news := w.update(nil, nil, begin.Add(50*time.Millisecond), begin.Add(60*time.Millisecond))
	if len(news) != 1 || news[0].Event != eventExpired {
		t.Errorf("%+v, want one expiry", news)
	}
}

func TestWatcher(t *testing.T) {
	w, at := watcher{began: true}, time.Now()
	many := dibs.State{Name: "n", Holding: 101, Waiting: 1, Holders: make([]dibs.Holder, 100), Waiters: make([]dibs.Waiter, 1)}
	more := many
	more.Holding = 140
	waiting := heldBy("first-token", time.Minute)
	waiting.Waiters, waiting.Waiting = []dibs.Waiter{{Token: "second-token", Waited: 2 * time.Second}}, 1
	reserved := heldBy("first-token", 20*time.Second)
	reserved.Holders[0].Reserved = true
	for _, step := range []struct {
		what   string
		states []dibs.State
		want   string
	}{
		{"held at the start", []dibs.State{heldBy("first-token", time.Minute)}, "held n first… ttl 1m00s\n"},
		{"no change", []dibs.State{heldBy("first-token", time.Minute)}, ""},
		{"a waiter", []dibs.State{waiting}, "waiting n second… position 1\n"},
		{"a hand-off", []dibs.State{heldBy("second-token", time.Minute)}, "released n first…\nhanded off n second… waited 12s, after first…\n"},
		{"a release", nil, "released n second… held 10s\n"},
		{"others acquire and release between two polls", nil, ""},
		{"an acquisition", []dibs.State{heldBy("third-token", 10*time.Second)}, "acquired n third… ttl 10s\n"},
		{"an expiry", nil, "expired n third… held 10s\n"},
		{"released and reserved", []dibs.State{reserved}, "reserved n first… [reserved] ttl 20s\n"},
		{"more holders than are listed", []dibs.State{many}, "changed n 101 holders, 1 waiter\n"},
		{"no change of the counts", []dibs.State{many}, ""},
		{"a change of a count", []dibs.State{more}, "changed n 140 holders, 1 waiter\n"},
		{"a waiter without a holder", []dibs.State{{Name: "n", Waiting: 1, Waiters: waiting.Waiters}}, "changed n 0 holders, 1 waiter\n"},
		{"the waiter gives up", nil, "gone n second… waited 12s\n"},
	} {
		at = at.Add(10 * time.Second)
		if have := w.lines(t, at, step.states...); have != step.want {
			t.Errorf("%s: want\n%s\nhave\n%s", step.what, step.want, have)
		}
	}
}

func TestWatcherDuringAnOutage(t *testing.T) {
	w, at := watcher{began: true}, time.Now()
	events := func(states []dibs.State, err error) (names []string) {
		for _, s := range w.update(states, err, at, at) {
			names = append(names, s.Event+s.Error)
		}
		return names
	}
	wantEqual := func(want, have []string) {
		t.Helper()
		if !slices.Equal(want, have) {
			t.Errorf("want %q, have %q", want, have)
		}
	}
	wantEqual([]string{"awaybroken"}, events(nil, errors.New("dibs: broken")))
	wantEqual(nil, events(nil, errors.New("still broken")))
	wantEqual([]string{"back", "held"}, events([]dibs.State{heldBy("token", -1)}, nil))
	wantEqual([]string{"awaybroken"}, events(nil, errors.New("broken")))
	wantEqual([]string{"back"}, events([]dibs.State{heldBy("token", -1)}, nil))
}

// For a local file, doctor checks only that a lock works.
func TestDoctorOfAFile(t *testing.T) {
	out, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	a := &app{out: out, getenv: func(string) string { return "" }, timeout: time.Second}
	if err := a.doctor(t.Context(), &opened{Store: memstore.New(), location: "local:/some/file"}); err != nil {
		t.Errorf("want no failure, have %v", err)
	}
	text, _ := os.ReadFile(out.Name())
	if !strings.HasPrefix(string(text), "local:/some/file\nnote: host\n") || !strings.Contains(string(text), "do not exclude processes on other hosts") {
		t.Errorf("have %s", text)
	}
}

// ignoresContext is a store that ignores the context of List.
type ignoresContext struct{ driver.Store }

func (ignoresContext) List(context.Context, string) ([]string, error) {
	time.Sleep(2 * time.Second)
	return nil, nil
}

func TestListIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, began := &app{timeout: time.Second}, time.Now()
		_, err := a.inspectMatching(t.Context(), ignoresContext{memstore.New()}, "*")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("want DeadlineExceeded after 1s, have %v after %v", err, time.Since(began))
		}
		time.Sleep(time.Second) // until List has returned
	})
}

func TestFit(t *testing.T) {
	var whole table
	whole.row("NAME", "KIND", "HOLDER", "TTL", "WAIT")
	whole.row(strings.Repeat("n", 30)+"1", "mutex", "host-with-a-long-name:4242", "28s", "3")
	whole.row("short", "mutex", "h:1", "9s", "12")
	for width, want := range map[int]string{
		0:  whole.String(),
		90: whole.String(),
		70: "NAME KIND HOLDER TTL WAIT\n",
		60: "NAME HOLDER TTL WAIT\n",
		50: "NAME HOLDER TTL WAIT\n",
		40: "NAME HOLDER TTL WAIT\n",
		30: "NAME TTL WAIT\n",
		10: "NAME TTL WAIT\n",
	} {
		fitted := whole.fit(width, "KIND", "HOLDER")
		have := fitted.String()
		for _, line := range fitted.lines() {
			if width >= 30 && len([]rune(line)) > width {
				t.Errorf("%d columns, want %d at most: %s", len([]rune(line)), width, line)
			}
		}
		if width == 0 || width == 90 {
			if have != want {
				t.Errorf("%d: want\n%s\nhave\n%s", width, want, have)
			}
			continue
		}
		head := strings.Fields(want[:strings.Index(want, "\n")])
		if !slices.Equal(fitted[0], head) {
			t.Errorf("%d: want the columns %q, have %q", width, head, fitted[0])
		}
		if name := fitted[1][0]; !strings.HasPrefix(name, "nn") || !strings.HasSuffix(name, "n1") {
			t.Errorf("%d: have the name %s", width, name)
		}
	}
	if len(whole[1][0]) != 31 || len(whole[0]) != 5 {
		t.Error("fit modified its receiver")
	}
}

func TestShorten(t *testing.T) {
	for text, want := range map[string]string{
		"":              "",
		"ab":            "ab",
		"abcdefgh":      "abcdefgh",
		"abcdefghi":     "abc…fghi",
		"世世世世世世世世世世1":   "世世世…世世世1",
		"order:0000042": "ord…0042",
	} {
		if have := shorten(text, 8); have != want {
			t.Errorf("%s: want %s, have %s", text, want, have)
		}
	}
}

// Error messages show no whole owner token.
func TestErrorsShowNoToken(t *testing.T) {
	const token = "web-1:42:AAAABBBBCCCCDDDD:abcdefghijklmnopqrstuvwx:label"
	busy := &dibs.BusyError{Name: "n", Holder: token, Remaining: time.Second}
	for _, err := range []error{busy, errors.Join(errors.New("x"), busy), exitWith(1, busy)} {
		var out bytes.Buffer
		for _, asJSON := range []bool{false, true} {
			a := &app{err: &out, json: asJSON}
			a.finish(err)
		}
		if text := out.String(); strings.Contains(text, "AAAA") || strings.Contains(text, "abcd") || !strings.Contains(text, "web-1:42") {
			t.Errorf("have %s", text)
		}
	}
}
