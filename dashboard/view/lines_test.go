package view

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dibslock/dibs/driver"
)

func TestWait(t *testing.T) {
	w := Wait{Names: []string{"job"}, Holder: "web-1:42:AAAABBBBCCCCDDDD:ABCDEFGHIJKLMNOPQRSTUVWX:backup", Position: 3}
	const text = `waiting for "job": held by web-1:42 (backup), 2 waiters ahead`
	if have := w.String(); have != text {
		t.Errorf("have %s", have)
	}
	if have := w.Line(61*time.Second, 100); have != "dibs: "+text+", 1m1s" {
		t.Errorf("have %s", have)
	}
	w.Update("", 0) // nothing is known
	if have := w.String(); have != text {
		t.Errorf("have %s", have)
	}
	w.Update("x", 1)
	if have := w.String(); have != `waiting for "job": held by x` {
		t.Errorf("have %s", have)
	}
}

// A line fits into the terminal, and leaves the last column free.
func TestWaitFits(t *testing.T) {
	w := Wait{Names: []string{"begin" + strings.Repeat("x", 100) + "end"}, Holder: "x", Position: 1}
	if have := w.Line(0, 60); utf8.RuneCountInString(have) != 59 || !strings.HasSuffix(have, `end": held by x, 0s`) || !strings.Contains(have, "…") {
		t.Errorf("%d columns: %s", utf8.RuneCountInString(have), have)
	}
	if have := w.Line(0, 20); utf8.RuneCountInString(have) != 19 {
		t.Errorf("%d columns: %s", utf8.RuneCountInString(have), have)
	}
}

func TestChangeFits(t *testing.T) {
	c := Change{Event: EventWaiting, Name: "begin" + strings.Repeat("x", 100) + "end", Waiter: &Waiter{Token: "t", Position: 1}}
	if have := c.Text(60); utf8.RuneCountInString(have) != 61 || !strings.HasSuffix(have, "end  t  position 1\n") {
		t.Errorf("%d columns: %s", utf8.RuneCountInString(have), have)
	}
	if have := c.Text(0); !strings.Contains(have, c.Name) {
		t.Errorf("without a terminal: %s", have)
	}
	if have := c.Text(10); !strings.Contains(have, "…") || !strings.Contains(have, "end  t") { // as far as possible
		t.Errorf("have %s", have)
	}
}

func TestList(t *testing.T) {
	now := time.UnixMicro(1763788260123456)
	states := []driver.State{
		{Name: "a\n", Holding: 2, Holders: []driver.Holder{
			{Token: "h", Weight: 1, Remaining: 20 * time.Second}, {Token: "i", Weight: 1, Remaining: 5 * time.Second}}},
		{Name: "b", Holding: 1, Waiting: 4, Holders: []driver.Holder{{Token: "h", Fence: uint64(now.Add(-90 * time.Second).UnixMicro()), Remaining: -1}}},
		{Name: "c", Waiting: 1},
	}
	names := StatesOf(states, now)
	const want = `NAME   KIND    HOLDER        TTL    HELD   WAIT  FENCE
"a\n"  shared  h and 1 more  5.0s   -      0     -
b      mutex   h             never  1m30s  4     1763788170123456
c      -       -             -      -      1     -
`
	if have := List(names, now, 0).String(); have != want {
		t.Errorf("want\n%s\nhave\n%s", want, have)
	}
	for by, want := range map[string]string{"name": "abc", "ttl": "cab", "waiting": "bca"} {
		order, known := SortingBy(Orders, by)
		sorted, have := SummariesOf(states), ""
		order.Sort(sorted)
		for _, n := range sorted {
			have += n.Name[:1]
		}
		if !known || have != want {
			t.Errorf("by %s: want %s, have %s", by, want, have)
		}
	}
}

// A list should show the first expiry, even behind a lease that never expires.
func TestLeft(t *testing.T) {
	states := []driver.State{{Holding: 3, Holders: []driver.Holder{{Remaining: -1}, {Remaining: 5 * time.Second}, {Remaining: 9 * time.Second}}}}
	n := StatesOf(states, time.Now())[0]
	one := SummaryOf(states[0])
	if n.left() != 5*time.Second || one.Left != 5*time.Second || !one.Never {
		t.Errorf("have %v, %+v", n.left(), one)
	}
}

// A table that fits is not shortened.
func TestFitExactly(t *testing.T) {
	name := strings.Repeat("n", 30)
	whole := Table{{"NAME", "TTL"}, {name, "28s"}}
	if have := whole.Fit(35)[1][0]; have != name {
		t.Errorf("35 columns: have %s", have)
	}
	if have := whole.Fit(34)[1][0]; utf8.RuneCountInString(have) != 29 {
		t.Errorf("34 columns: have %s", have)
	}
}

func TestStamped(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.FixedZone("", 3600))
	if s := Stamped("e", at); s.Schema != Schema || s.Event != "e" || s.Time.Format(time.RFC3339Nano) != "2026-01-02T02:04:05.678Z" {
		t.Errorf("have %+v", s)
	}
}

func TestChangeColumns(t *testing.T) {
	ms := func(n int64) *int64 { return &n }
	held, waiter := &Holder{Token: "h", TTL: ms(5000)}, &Waiter{Token: "w", Position: 2}
	for want, c := range map[string]Change{
		"waiting     n  w  position 2":           {Event: EventWaiting, Waiter: waiter},
		"gone        n  w  waited 1.0s":          {Event: EventGone, Waiter: waiter, Waited: 1000},
		"changed     n  1 holder, 2 waiters":     {Event: EventChanged, Holding: 1, Waiting: 2},
		"handed off  n  h  waited 1.0s":          {Event: EventHandedOff, Holder: held, Waited: 1000},
		"handed off  n  h  waited 1.0s, after x": {Event: EventHandedOff, Holder: held, Waited: 1000, From: &Holder{Token: "x"}},
		"released    n  h  held 2.0s":            {Event: EventReleased, Holder: held, Held: 2000},
		"released    n  h":                       {Event: EventReleased, Holder: held},
		"expired     n  h":                       {Event: EventExpired, Holder: held},
		"acquired    n  h  ttl 5.0s":             {Event: EventAcquired, Holder: held},
		"held        n  h  never expires":        {Event: EventHeld, Holder: &Holder{Token: "h"}},
	} {
		c.Name, c.Time = "n", time.Now()
		if _, have, _ := strings.Cut(c.Text(0), "  "); have != want+"\n" {
			t.Errorf("want %s, have %s", want, have)
		}
	}
}

// Tokens are shortened, unless whole ones are requested.
func TestStateOf(t *testing.T) {
	const token = "web-1:42:AAAABBBBCCCCDDDD:ABCDEFGHIJKLMNOPQRSTUVWX"
	s := driver.State{
		Name: "n", Holding: 1, Holders: []driver.Holder{{Token: token, Fence: 7, Remaining: time.Second, Reserved: true}},
		Waiting: 1, Waiters: []driver.Waiter{{Token: token, Waited: time.Second}},
	}
	n := StateOf(s, time.Now())
	if n.Holders[0].Token != "web-1:42:…" || n.Waiters[0].Token != "web-1:42:…" || strings.Contains(n.Text(time.Now(), 0), "AAAA") {
		t.Errorf("have %+v", n)
	}
	if n.State != Held || n.Kind != "mutex" || n.Fence != 7 || n.Waiters[0].Position != 1 || n.Holders[0].String() != "web-1:42 [reserved]" {
		t.Errorf("have %+v", n)
	}
	whole := StateWithTokens(s, time.Now())
	if text := whole.Text(time.Now(), 0); strings.Count(text, token) != 2 || strings.Count(text, "TOKEN") != 2 {
		t.Errorf("have %s", text)
	}
	s.Holders[0].Weight = 1
	if shared := StateOf(s, time.Now()); shared.Kind != KindShared || shared.Fence != 0 {
		t.Errorf("have %+v", shared)
	}
	if free := StateOf(driver.State{Name: "n", Waiting: 1}, time.Now()); free.State != Free || free.Kind != "" || free.Holders == nil || free.Waiters == nil {
		t.Errorf("have %+v", free)
	}
}

func TestDescriptions(t *testing.T) {
	for want, n := range map[string]State{
		"n is free\n":                       {Name: "n", State: Free},
		"n is held: mutex, by one holder\n": {Name: "n", State: Held, Kind: "mutex"},
		"n is held: shared, by 1 holder\n":  {Name: "n", State: Held, Kind: KindShared, Holding: 1, Holders: []Holder{{}}},
		"n is held: semaphore of 5 permits, by 9 holders (2 of them shown)\n": {Name: "n", State: Held, Kind: "semaphore", Limit: 5, Holding: 9, Holders: []Holder{{Weight: 1}, {Weight: 1}}},
		"n cannot be locked: ": {Name: "n", State: WrongType},
	} {
		if have := n.Text(time.Now(), 0); !strings.HasPrefix(have, want) {
			t.Errorf("want %s, have %s", want, have)
		}
	}
}

func TestUnlocked(t *testing.T) {
	now := time.UnixMicro(1763788260123456)
	first := Holder{Token: "a", Fence: uint64(now.UnixMicro()), Since: now.Add(-time.Minute)}
	next := Holder{Token: "b"}
	since := first.Since.Local().Format(time.DateTime)
	for want, u := range map[string]Unlocked{
		"n is held by b, fence not known yet: nothing was done": {Name: "n", Holders: []Holder{next}},
		"n: revoked the lease of a, fence 1763788260123456, since " + since + " (1m00s)\nn: now held by b\nreason: r\n": {
			Name: "n", Removed: true, Ended: []Holder{first}, Holders: []Holder{next}, Reason: "r"},
		"n: revoked the lease of b, fence not known yet\n": {Name: "n", Removed: true, Ended: []Holder{next}},
	} {
		if have := u.Text(now); have != want {
			t.Errorf("want %s, have %s", want, have)
		}
	}
}
