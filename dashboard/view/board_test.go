package view

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
)

// drawn returns a frame without its terminal sequences.
func drawn(b *Board, now time.Time, width, height int) string {
	text := regexp.MustCompile(`\x1b\[[0-9;?]*[a-zA-Z]`).ReplaceAllString(b.Draw(now, width, height), "")
	lines := strings.Split(text, "\r\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

func locked(name string, left, waited time.Duration) driver.State {
	s := driver.State{Name: name, Holding: 1, Holders: []driver.Holder{{Token: "t", Remaining: left}}}
	if waited > 0 {
		s.Waiting, s.Waiters = 1, []driver.Waiter{{Token: "w", Waited: waited}}
	}
	return s
}

func TestBoard(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	b := &Board{Location: "redis://here", Every: time.Second}
	want := func(what, text string) {
		t.Helper()
		if have := drawn(b, now, 80, 8); have != text {
			t.Errorf("%s: want\n%s\nhave\n%s", what, text, have)
		}
	}
	const keys = "q quit  j k move  space b page  g G ends  s sort\n"
	const head = "  NAME   KIND   HOLDER  TTL    HELD  WAIT  LONGEST  FENCE\n"
	const top = "dibs top   redis://here   every 1s   03:04:05\n"
	want("before the first poll", "dibs top   redis://here   every 1s\n"+
		"held 0   waiting 0   longest wait 0ms   never expiring 0   sorted by worst\nloading …\n"+
		"  NAME  KIND  HOLDER  TTL  HELD  WAIT  LONGEST  FENCE\n\n\n\n"+keys)

	states := []driver.State{locked("calm", 9*time.Second, 0), locked("never", -1, 0), locked("busy", 60*time.Second, 3*time.Second)}
	b.Update(states, nil, now)
	counts := "held 3   waiting 1   longest wait 3.0s   never expiring 1   sorted by "
	busy := "  busy   mutex  t       1m00s  -     1     3.0s     -\n"
	never := "  never  mutex  t       never  -     0     -        -\n"
	calm := "  calm   mutex  t       9.0s   -     0     -        -\n"
	chosen := func(row string) string { return ">" + row[1:] }
	want("the longest wait first", top+counts+"worst\n\n"+head+chosen(busy)+never+calm+keys)
	b.Press("j")
	want("the next row", top+counts+"worst\n\n"+head+busy+chosen(never)+calm+keys)
	b.Press("s")
	want("by name, with the same selection", top+counts+"name\n\n"+head+busy+calm+chosen(never)+keys)
	b.Press("s")
	want("by TTL", top+counts+"ttl\n\n"+head+calm+busy+chosen(never)+keys)
	b.Press("G")
	b.Press("j")
	b.Press("x")
	want("the last row", top+counts+"ttl\n\n"+head+calm+busy+chosen(never)+keys)
	b.Press("g")
	want("the first row", top+counts+"ttl\n\n"+head+chosen(calm)+busy+never+keys)

	b.Update(nil, errors.New("dibs: away\x1b[2J"), now.Add(time.Second))
	want("an outage", strings.Replace(top, ":05", ":06", 1)+counts+"ttl\n"+
		"the store does not answer, showing the last state: \"away\\x1b[2J\"\n"+head+chosen(calm)+busy+never+keys)
	b.Update(states[1:], nil, now)
	want("the selected name is gone", top+
		"held 2   waiting 1   longest wait 3.0s   never expiring 1   sorted by ttl\n\n"+head+chosen(busy)+never+"\n"+keys)
	b.Update(nil, nil, now)
	want("no names", top+"held 0   waiting 0   longest wait 0ms   never expiring 0   sorted by ttl\nnothing is held\n"+
		"  NAME  KIND  HOLDER  TTL  HELD  WAIT  LONGEST  FENCE\n\n\n\n"+keys)
}

// The visible rows should include the selected row. A page is the number of visible rows.
func TestBoardScrolls(t *testing.T) {
	now := time.Now()
	var b Board
	var states []driver.State
	for _, name := range strings.Split("abcdefghij", "") {
		states = append(states, locked(name, time.Minute, 0))
	}
	b.Update(states, nil, now)
	visible := func() string {
		var names []string
		for line := range strings.Lines(drawn(&b, now, 80, 8)) { // 3 rows fit
			if m := regexp.MustCompile(`^([ >]) ([a-j]) `).FindStringSubmatch(line); m != nil {
				names = append(names, strings.TrimSpace(m[1]+m[2]))
			}
		}
		return strings.Join(names, "")
	}
	for _, step := range []struct{ key, want string }{
		{"", ">abc"}, {"j", "a>bc"}, {" ", "cd>e"}, {"k", "c>de"}, {"\x1b[6~", "ef>g"}, {"b", ">def"},
		{"\x1b[5~", ">abc"}, {"G", "hi>j"}, {"j", "hi>j"}, {"\x1b[A", "h>ij"}, {"\x1bOA", ">hij"}, {"k", ">ghi"}, {"\x1b[H", ">abc"},
	} {
		if b.Press(step.key); visible() != step.want {
			t.Errorf("after %q: want %s, have %s", step.key, step.want, visible())
		}
	}
	b.Press("G")
	visible()
	if b.Update(states[:8], nil, now); visible() != "fg>h" { // no row stays empty
		t.Errorf("with fewer names: have %s", visible())
	}
}

// A high screen should show the selected name's details.
func TestBoardDetails(t *testing.T) {
	now := time.Now()
	var b Board
	b.Update([]driver.State{locked("job", time.Minute, 0)}, nil, now)
	if text := drawn(&b, now, 80, 15); strings.Contains(text, "is held") {
		t.Errorf("15 lines: have\n%s", text)
	}
	text := drawn(&b, now, 80, 16)
	if !strings.Contains(text, "\n\njob is held: mutex, by one holder\nHOLDER") || strings.Count(text, "\n") != 16 {
		t.Errorf("16 lines: have\n%s", text)
	}
}

// On a terminal, the cursor stays on a full line's last character, so nothing after it may erase.
// The fence should keep its last digit.
func TestFullLines(t *testing.T) {
	now := time.Now()
	var b Board
	one := locked("name", time.Minute, 0)
	one.Holders[0].Fence = 1763788260123456
	b.Update([]driver.State{one}, nil, now)
	for width := 60; width < 80; width++ {
		frame := b.Draw(now, width, 7)
		for line := range strings.SplitSeq(strings.TrimPrefix(frame, home), "\r\n") {
			if strings.LastIndex(line, "\x1b[K") > 0 || strings.Contains(line, endScreen) {
				t.Fatalf("%d columns: %q is erased at its end", width, line)
			}
		}
		if fence := regexp.MustCompile(`\d{10,}`).FindString(frame); strings.Contains(frame, "FENCE") && fence != "1763788260123456" {
			t.Errorf("%d columns: fence %s", width, fence)
		}
	}
}

func TestBoardColours(t *testing.T) {
	for _, colours := range []bool{false, true} {
		b := Board{Colours: colours}
		b.Update(nil, errors.New("away"), time.Now())
		if frame := b.Draw(time.Now(), 80, 24); strings.Contains(frame, red) != colours || !strings.Contains(frame, reverse) {
			t.Errorf("colours %v: have %q", colours, frame)
		}
	}
}

// With many names, the rows on the screen are read. An unread row shows the counts.
func TestBoardOfManyNames(t *testing.T) {
	now := time.Now()
	var b Board
	var states []driver.State
	for _, name := range strings.Split("abcdefghij", "") {
		states = append(states, locked(name, time.Minute, 0))
	}
	b.UpdateMany(SummariesOf(states), states[:2], nil, now)
	text := drawn(&b, now, 80, 8)
	for _, want := range []string{"held 10 ", "\n> a     mutex  t       1m00s", "\n  c     -      …       -      -     0 "} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
	if have := strings.Join(b.Visible(), ""); have != "abc" {
		t.Errorf("on display: %s", have)
	}
	b.Press("G")
	drawn(&b, now, 80, 8)
	if have := strings.Join(b.Visible(), ""); have != "hij" {
		t.Errorf("on display at the end: %s", have)
	}
}

// Several cycles should be shown, sure cycles first and in red. An unsure cycle must persist.
func TestBoardShowsEachCycle(t *testing.T) {
	now := time.Now()
	token := func(pid string) string { return "web:" + pid + ":AAAAclient0000" + pid + ":m-random" }
	held := func(name, waiter string, holders ...string) driver.State {
		s := driver.State{Name: name, Holding: len(holders), Waiters: []driver.Waiter{ownertoken.NewWaiter(token(waiter), 1, 1)}}
		for _, h := range holders {
			s.Holders = append(s.Holders, driver.Holder{Token: token(h)})
		}
		return s
	}
	permits := held("a", "102", "101", "109")
	permits.Waiters[0].Weight, permits.Waiters[0].Limit = 1, 2
	states := []driver.State{
		permits, held("b", "101", "102"),
		held("c", "104", "103"), held("d", "103", "104"), held("e", "106", "105"), held("f", "105", "106"),
	}
	b := &Board{Colours: true}
	shown := func() string {
		b.Update(states, nil, now)
		var cycles []string
		for line := range strings.SplitSeq(b.Draw(now, 200, 12), "\r\n") {
			if m := regexp.MustCompile(`(\x1b\[31m)?2 processes( may)? wait for each other.* for (\w) of`).FindStringSubmatch(line); m != nil {
				cycles = append(cycles, m[1]+m[2]+m[3])
			}
		}
		return strings.Join(cycles, "|")
	}
	const sure = red + "c|" + red + "e"
	for i, want := range []string{sure, sure, sure + "| maya"} {
		if have := shown(); have != want {
			t.Errorf("poll %d: want %q, have %q", i, want, have)
		}
	}
}

// Processes that wait for each other are shown above the names.
func TestBoardShowsCycles(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	const one, two = "web:1:AAAAclient0000000:m-random", "web:2:BBBBclient0000000:m-random"
	states := func(second string) []driver.State {
		return []driver.State{
			{Name: "a", Holders: []driver.Holder{{Token: one}}, Waiters: []driver.Waiter{{Token: two}}},
			{Name: "b", Holders: []driver.Holder{{Token: two}}, Waiters: []driver.Waiter{{Token: second}}},
		}
	}
	b := &Board{Location: "redis://here", Every: time.Second, Colours: true}
	const cycle = "2 processes wait for each other: web:1 waits for b of web:2, web:2 waits for a of web:1"
	b.Update(states(one), nil, now)
	if have := b.Draw(now, 100, 12); !strings.Contains(have, red+cycle) {
		t.Errorf("the cycle is not shown in red:\n%q", have)
	}
	b.Update(states("web:3:CCCCclient0000000:m-random"), nil, now)
	if have := b.Draw(now, 100, 12); strings.Contains(have, "each other") {
		t.Errorf("a cycle that is gone is shown:\n%q", have)
	}
}
