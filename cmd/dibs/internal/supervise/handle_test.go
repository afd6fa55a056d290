package supervise

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The watchdog kills the command shortly before the deadline. It gets each new deadline
// once.
func TestExtend(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	g := &handle{pipe: in}
	began := time.Now()
	for _, extension := range []struct {
		left, ttl, killAt time.Duration
	}{
		{time.Minute, time.Hour, time.Minute - 50*time.Millisecond},
		{time.Minute, time.Hour, time.Minute - 50*time.Millisecond},
		{2 * time.Minute, time.Second, 2*time.Minute - 20*time.Millisecond},
	} {
		g.extend(began.Add(extension.left), extension.ttl)
		if have := g.killAt.Sub(began); have != extension.killAt || g.expired() {
			t.Errorf("%+v: the kill time is in %v, expired %v", extension, have, g.expired())
		}
	}
	in.Close()
	var until []time.Duration
	for lines := bufio.NewScanner(out); lines.Scan(); {
		at, err := strconv.ParseInt(strings.TrimPrefix(lines.Text(), "until "), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		until = append(until, time.Duration(at)-sinceBoot())
	}
	if len(until) != 2 || until[0] > time.Minute || until[1] < time.Minute || until[1] > 2*time.Minute {
		t.Errorf("want 2 kill times, have %v", until)
	}
}

// An extension sent too late should not count.
func TestLateExtension(t *testing.T) {
	_, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	g := &handle{pipe: in}
	if g.expired() {
		t.Error("expired without a kill time")
	}
	g.extend(time.Now().Add(-time.Second), time.Hour)
	if !g.expired() {
		t.Error("want the kill time over")
	}
	g.extend(time.Now().Add(time.Hour), time.Hour)
	if !g.expired() {
		t.Error("a late extension revived the command")
	}
}
