package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unique"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
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
		if have := Safe(text); have != want {
			t.Errorf("%q: want %s, have %s", text, want, have)
		}
	}
}

func TestWriteLine(t *testing.T) {
	var out bytes.Buffer
	if err := WriteLine(&out, "a\x1b\u009b\u202e\U000e0001é<\n"); err != nil {
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
		if have := Brief(d); have != want {
			t.Errorf("%v: want %s, have %s", d, want, have)
		}
	}
}

func TestOwnerOf(t *testing.T) {
	const random, secret = "AAAABBBBCCCCDDDD", "ABCDEFGHIJKLMNOPQRSTUVWX"
	for token, want := range map[string]Owner{
		"web-1:42:" + random + ":1z":                 {Host: "web-1", PID: 42, Short: "web-1:42:…"},
		"web-1:42:" + random + ":1z:a:b":             {Host: "web-1", PID: 42, Label: "a:b", Short: "web-1:42:…"},
		"web-1:42:" + random + ":" + secret:          {Host: "web-1", PID: 42, Short: "web-1:42:…"},
		"web-1:42:" + random + ":" + secret + ":a:b": {Host: "web-1", PID: 42, Label: "a:b", Short: "web-1:42:…"},
		"web-1:42:" + random + ":" + secret + ":x":   {Host: "web-1", PID: 42, Label: "x", Short: "web-1:42:…"},
		"a:secret:that:has:colons:of:its:own":        {Short: "a:secret…"},
		"1":                                          {Short: "1"},
		"sesame":                                     {Short: "ses…"},
	} {
		if have := OwnerOf(token); have != want {
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
		if have := SinceOf(fence, now); !have.Equal(want) {
			t.Errorf("%d: want %v, have %v", fence, want, have)
		}
	}
}

// A time from the store should be used instead of the fence's.
func TestHolderSince(t *testing.T) {
	t.Parallel()
	now := time.Now()
	fence := uint64(now.Add(-time.Hour).UnixMicro())
	for want, h := range map[time.Time]driver.Holder{
		now.Add(-time.Hour):   {Fence: fence},
		now.Add(-time.Minute): {Fence: fence, Since: now.Add(-time.Minute)},
	} {
		if have := HolderOf(h, now).Since; !have.Equal(want.Truncate(time.Millisecond)) {
			t.Errorf("have %v, want %v", have, want)
		}
	}
}

func TestKind(t *testing.T) {
	mutex, shared := driver.Holder{Token: "chosen"}, driver.Holder{Token: "chosen", Weight: 1}
	token := func(kind driver.Kind, limit, weight int) driver.Holder {
		return ownertoken.NewHolder(string(ownertoken.AppendKind([]byte("web-1:42:AAAABBBBCCCCDDDD:"), kind, limit))+"abcdefgh:label", weight)
	}
	for _, c := range []struct {
		kind  string
		limit int
		word  string
		text  string
		on    []driver.Holder
	}{
		{"", 0, "", "is free", nil},
		{"mutex", 0, "mutex", "is held: mutex, by one holder", []driver.Holder{mutex}},
		{"mutex", 0, "mutex", "is held: mutex, by one holder", []driver.Holder{token(driver.KindMutex, 1, 0)}},
		{"writer", 0, "writer", "is held: writer, by one holder", []driver.Holder{token(driver.KindWriter, 0, 0)}},
		{"writer", 0, "writer", "is held: writer, by one holder", []driver.Holder{token(driver.KindReader, 0, 0)}},
		{"reader", 0, "reader", "is held: by 1 reader", []driver.Holder{token(driver.KindReader, 0, 1)}},
		{"reader", 0, "reader", "is held: by 3 readers", []driver.Holder{shared, token(driver.KindReader, 0, 1), token(driver.KindReader, 0, 1)}},
		{"shared", 0, "shared", "is held: shared, by 2 holders", []driver.Holder{shared, shared}},
		{"semaphore", 4, "semaphore 3 of 4", "is held: semaphore 3 of 4 permits, by 2 holders", []driver.Holder{token(driver.KindSemaphore, 4, 1), token(driver.KindSemaphore, 4, 2)}},
		{"semaphore", 4, "semaphore 4 of 4", "is held: semaphore 4 of 4 permits, by 1 holder", []driver.Holder{token(driver.KindSemaphore, 4, 0)}},
		{"multi", 0, "multi-lock", "is held: multi-lock, by one holder", []driver.Holder{token(driver.KindMulti, 1, 0)}},
		{"election", 0, "election", "is held: election, by one holder", []driver.Holder{token(driver.KindElection, 1, 0)}},
		{"once", 0, "periodic job", "is held: periodic job, by one holder", []driver.Holder{token(driver.KindOnce, 1, 0)}},
	} {
		n := StateOf(driver.State{Name: "n", Holders: c.on, Holding: len(c.on)}, time.Now())
		if n.Kind != c.kind || n.Limit != c.limit || n.kindText() != c.word || n.Description() != c.text {
			t.Errorf("%+v: kind %q, limit %d, %q, %q; want %+v", c.on, n.Kind, n.Limit, n.kindText(), n.Description(), c)
		}
	}
}

// A JSON consumer should get a limit only if it means something, and a weight only for a shared
// holder.
func TestWeights(t *testing.T) {
	const prefix = "web-1:42:AAAABBBBCCCCDDDD:"
	s := driver.State{
		Holders: []driver.Holder{ownertoken.NewHolder(prefix+"r-abcdefgh", 1), ownertoken.NewHolder(prefix+"s4-abcdefgh", 2), ownertoken.NewHolder(prefix+"m-abcdefgh", 0)}, Holding: 3,
		Waiters: []driver.Waiter{
			ownertoken.NewWaiter(prefix+"r-abcdefgh", 1, driver.Unlimited), ownertoken.NewWaiter(prefix+"w-abcdefgh", driver.Unlimited, driver.Unlimited),
			ownertoken.NewWaiter(prefix+"s4-abcdefgh", 2, 4), ownertoken.NewWaiter(prefix+"s4-abcdefgh", 4, 4), ownertoken.NewWaiter("chosen", 1, 1),
			ownertoken.NewWaiter("chosen", 2, 3), {Token: "unknown"},
		}, Waiting: 7,
	}
	n := StateOf(s, time.Now())
	type of struct {
		kind          string
		weight, limit int
		text          string
	}
	for i, want := range []of{{"reader", 1, 0, "1"}, {"semaphore", 2, 4, "2"}, {"mutex", 0, 1, "all"}} {
		h := n.Holders[i]
		if have := (of{h.Kind, h.Weight, h.Limit, weightText(h.Weight)}); have != want {
			t.Errorf("holder %d: %+v, want %+v", i, have, want)
		}
	}
	for i, want := range []of{
		{"reader", 1, 0, "1"}, {"writer", 0, 0, "all"}, {"semaphore", 2, 4, "2"}, {"semaphore", 0, 4, "all"}, {"mutex", 0, 1, "all"}, {"shared", 2, 3, "2"}, {"", 0, 0, "-"},
	} {
		w := n.Waiters[i]
		if have := (of{w.Kind, w.Weight, w.Limit, w.weightText()}); have != want {
			t.Errorf("waiter %d: %+v, want %+v", i, have, want)
		}
	}
}

func TestText(t *testing.T) {
	ms := func(n int64) *int64 { return &n }
	n := State{
		Name: "gpu", State: Held, Kind: "semaphore", Limit: 400, Holding: 150, Waiting: 200,
		Holders: []Holder{{Token: "t…", Host: "a", PID: 1, Weight: 2, Fence: 7, TTL: ms(2500)}},
		Waiters: []Waiter{{Token: "u…", Host: "b", PID: 2, Label: "x", Kind: "semaphore", Weight: 3, Position: 1, Waited: 61000}},
	}
	const want = `gpu is held: semaphore of 400 permits, by 150 holders (1 of them shown)
HOLDER  TTL   HELD  WEIGHT  FENCE
a:1     2.5s  -     2       7

200 waiters in queue order (1 of them shown)
#  WAITER   KIND       WEIGHT  WAITED
1  b:2 (x)  semaphore  3       1m01s
`
	if have := n.Text(time.Now(), 0); have != want {
		t.Errorf("want\n%s\nhave\n%s", want, have)
	}
	if have := n.holderSummary(); have != "a:1 and 149 more" {
		t.Errorf("want the first holder and the number of others, have %s", have)
	}
}

// For a quorum, the text should contain the nodes that do not answer or differ, and nothing else.
func TestNodes(t *testing.T) {
	const prefix = "web-1:42:AAAABBBBCCCCDDDD:"
	mine, other := ownertoken.NewHolder(prefix+"m-abcdefgh:mine", 0), ownertoken.NewHolder(prefix+"r-ijklmnop:other", 1)
	state := func(holders ...driver.Holder) driver.State {
		return driver.State{Name: "n", Holders: holders, Holding: len(holders)}
	}
	foreign := state()
	foreign.Foreign = &driver.Foreign{Key: "n", Type: "hash", Kind: "a\x1b[2J"}
	s := state(mine)
	s.Nodes = []driver.NodeState{
		{State: state(mine)}, {Err: &driver.UnavailableError{Op: "inspect", Name: "n", Cause: errors.New("gone\x1b[2J")}},
		{State: state(other, other)}, {State: state()}, {State: foreign},
	}
	n := StateOf(s, time.Now())
	_, text, _ := strings.Cut(n.Text(time.Now(), 0), "\n\n")
	const want = `node 1 does not answer: "inspect \"n\": store unavailable: gone\x1b[2J"
node 2 differs: held by web-1:42 (other) as reader, web-1:42 (other) as reader
node 3 differs: free
node 4 differs: its key holds "a\x1b[2J"
`
	if text != want {
		t.Errorf("want\n%s\nhave\n%s", want, text)
	}
	var out bytes.Buffer
	if err := WriteLine(&out, n); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "abcdefgh") || strings.Contains(out.String(), "ijklmnop") {
		t.Errorf("a token is shown: %s", out.String())
	}
	if !strings.Contains(out.String(), `"nodes":[{"node":0,"state":"held","holders":[{"token":"web-1:42:…"`) ||
		!strings.Contains(out.String(), `{"node":3,"state":"free","holders":[],"waiting":0,"differs":true}`) {
		t.Errorf("have %s", out.String())
	}
	if _, text, found := strings.Cut(StateOf(state(mine), time.Now()).Text(time.Now(), 0), "\n\n"); found {
		t.Errorf("without nodes: %s", text)
	}
	if whole := StateWithTokens(s, time.Now()); whole.Nodes[0].Holders[0].Token != mine.Token {
		t.Errorf("with tokens: %+v", whole.Nodes[0])
	}
}

func TestFit(t *testing.T) {
	var whole Table
	whole.Row("NAME", "KIND", "HOLDER", "TTL", "WAIT")
	whole.Row(strings.Repeat("n", 30)+"1", "mutex", "host-with-a-long-name:4242", "28s", "3")
	whole.Row("short", "mutex", "h:1", "9s", "12")
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
		fitted := whole.Fit(width, "KIND", "HOLDER")
		have := fitted.String()
		for _, line := range fitted.Lines() {
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
		t.Error("Fit modified its receiver")
	}
}

func TestShorten(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "",
		"ab":                    "ab",
		"abcdefgh":              "abcdefgh",
		"abcdefghi":             "abc…fghi",
		"世世世世世世世世世世1":           "世…世1",
		"abcde世fgh":             "abc…fgh",
		"e\u0301e\u0301e\u0301": "e\u0301e\u0301e\u0301",
		"order:0000042":         "ord…0042",
	} {
		if have := Shorten(text, 8); have != want {
			t.Errorf("%s: want %s, have %s", text, want, have)
		}
	}
}

// Columns should be aligned by terminal cells. A very long cell should move only the cells after
// it.
func TestTableIsAlignedByCells(t *testing.T) {
	long := strings.Repeat("n", widestPadded+1)
	table := Table{{"NAME", "TTL"}, {"世界", "1s"}, {"e\u0301te\u0301", "2s"}, {"한국어", "3s"}, {"🔒x", "4s"}, {long, "5s"}}
	want := []string{"NAME    TTL", "世界    1s", "e\u0301te\u0301     2s", "한국어  3s", "🔒x     4s", long + "  5s"}
	if have := table.Lines(); !slices.Equal(have, want) {
		t.Errorf("want\n%s\nhave\n%s", strings.Join(want, "\n"), strings.Join(have, "\n"))
	}
}

func TestCut(t *testing.T) {
	for width, want := range map[int]string{-1: "", 0: "", 1: "a", 2: "a", 3: "a世", 4: "a世e\u0301", 9: "a世e\u0301b"} {
		if have := Cut("a世e\u0301b", width); have != want {
			t.Errorf("%d cells: want %q, have %q", width, want, have)
		}
	}
}

// With foreign locks in a list, their kind is omitted last: it matters more than the holder.
func TestListOfForeignLocks(t *testing.T) {
	now := time.Now()
	lock := StateOf(driver.State{
		Name: "order:42", Holding: 1, Holders: []driver.Holder{{Token: "8743c9c0-0795-4907-87fd-6c719a6b4586:40", Owner: "8743c9c0-0795-4907-87fd-6c719a6b4586:40", Remaining: 28 * time.Second}},
		Foreign: &driver.Foreign{Key: "order:42", Type: "hash", Kind: "Redisson RLock", Lock: true, Remaining: 28 * time.Second},
	}, now)
	counter := StateOf(driver.State{
		Name: "hits", Holding: 1, Holders: []driver.Holder{{Token: "17", Remaining: -1}},
		Foreign: &driver.Foreign{Key: "lock:hits", Type: "string", Kind: "counter", Remaining: -1},
	}, now)
	for width, want := range map[int]string{
		80: "NAME KIND HOLDER TTL HELD WAIT FENCE",
		60: "NAME KIND HOLDER TTL WAIT",
		45: "NAME KIND TTL WAIT",
		30: "NAME TTL WAIT",
	} {
		have := List([]State{lock, counter}, now, width).String()
		if header, _, _ := strings.Cut(have, "\n"); strings.Join(strings.Fields(header), " ") != want {
			t.Errorf("%d columns: want %s, have\n%s", width, want, have)
		}
		for line := range strings.Lines(have) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
				t.Errorf("%d columns, want %d: %s", n, width, line)
			}
		}
	}
	if counter.State != WrongType || counter.Kind != "" || len(counter.Holders) != 0 || counter.Holding != 0 || lock.State != Held || lock.Kind != KindForeign {
		t.Errorf("have %+v and %+v", lock, counter)
	}
}

// A token that is not UTF-8 should not be lost in JSON. It should be shown only on request.
func TestBinaryToken(t *testing.T) {
	const token = "8b\xf3\xb1\x1e\xf2\x9d\x80|\xc9\"\xe1\x10\x9d~\xfa{i`\x00"
	s := driver.State{Name: "n", Holding: 1, Holders: []driver.Holder{{Token: token, Remaining: time.Second}}}
	var out bytes.Buffer
	if err := WriteLine(&out, StateWithTokens(s, time.Now())); err != nil {
		t.Fatal(err)
	}
	var line struct {
		Holders []struct {
			Token string `json:"token"`
			Bytes []byte `json:"token_base64"`
		} `json:"holders"`
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if string(line.Holders[0].Bytes) != token || !strings.HasPrefix(line.Holders[0].Token, "8b\ufffd") {
		t.Errorf("have %s", out.String())
	}
	if short := StateOf(s, time.Now()); short.Holders[0].Bytes != nil {
		t.Errorf("have %+v", short)
	}
	s.Holders[0].Token = "sesame"
	if whole := StateWithTokens(s, time.Now()); whole.Holders[0].Bytes != nil {
		t.Errorf("have %+v", whole)
	}
}

func TestCountsOf(t *testing.T) {
	foreign := driver.State{Name: "f", Foreign: &driver.Foreign{Key: "f", Lock: true, Remaining: -1}, Holding: 1, Holders: []driver.Holder{{Token: "x", Remaining: -1}}}
	free := driver.State{Name: "w", Waiting: 2, Waiters: []driver.Waiter{{Token: "a", Waited: time.Minute}, {Token: "b", Waited: time.Second}}}
	have := CountsOf(SummariesOf([]driver.State{locked("a", time.Second, 3*time.Second), foreign, free}))
	if want := (Counts{Held: 2, Holding: 2, Waited: 2, Waiting: 3, Longest: time.Minute, Never: 1, Foreign: 1}); have != want {
		t.Errorf("want %+v, have %+v", want, have)
	}
}

// A summary says the same as the state.
func TestSummaryOf(t *testing.T) {
	data := driver.State{Name: "d", Foreign: &driver.Foreign{Key: "d", Remaining: time.Second}, Holding: 1, Holders: []driver.Holder{{Token: "x", Remaining: -1}}}
	busy := locked("b", time.Minute, 3*time.Second)
	busy.Holders = append(busy.Holders, driver.Holder{Remaining: -1}, driver.Holder{Remaining: time.Second})
	const kind, client = string(driver.KindMutex), ":7:clientclientclient:secret"
	hosts := locked("h", time.Second, 2*time.Second)
	hosts.Holders = append(hosts.Holders, driver.Holder{Token: "web-2" + client, Kind: driver.KindReader, Weight: 1, Remaining: time.Minute})
	hosts.Waiters = append(hosts.Waiters, driver.Waiter{Token: "web-1" + client}, driver.Waiter{Token: "web-2" + client})
	for _, c := range []struct {
		state driver.State
		want  Summary
	}{
		{hosts, Summary{Name: "h", Held: true, Holding: 2, Waiting: 1, Longest: 2 * time.Second, Left: time.Second, Kind: "reader", Hosts: []unique.Handle[string]{unique.Make("web-2"), unique.Make("web-1")}}},
		{driver.State{Name: "f"}, Summary{Name: "f"}},
		{data, Summary{Name: "d", Foreign: true, Kind: KindForeign}},
		{locked("n", -1, 0), Summary{Name: "n", Held: true, Holding: 1, Never: true, Left: -1, Kind: kind}},
		{busy, Summary{Name: "b", Held: true, Holding: 3, Never: true, Waiting: 1, Longest: 3 * time.Second, Left: time.Second, Kind: kind}},
	} {
		have := SummaryOf(c.state)
		shown := StateOf(c.state, time.Now())
		if !reflect.DeepEqual(have, c.want) || have.Held && have.Kind != shown.Kind || have.Held != (shown.State == Held) || have.Held && have.Left > 0 && have.Left != shown.left() {
			t.Errorf("want %+v, have %+v of %+v", c.want, have, shown)
		}
	}
}

// A name that may not be read is shown with the reason.
func TestUnreadableName(t *testing.T) {
	refusal := errors.New("NOPERM no\x1b")
	for _, err := range []error{refusal, &driver.UnavailableError{Op: "inspect", Name: "a", Cause: refusal}} {
		n := StateOf(driver.State{Name: "a", Err: err}, time.Now())
		if n.State != Unreadable || n.Error != refusal.Error() {
			t.Errorf("%+v", n)
		}
		if text := List([]State{n}, time.Now(), 0).String(); !strings.Contains(text, `unreadable: "NOPERM no\x1b"`) {
			t.Errorf("%s", text)
		}
	}
}
