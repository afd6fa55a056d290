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
		left, ttl time.Duration
	}{{time.Minute, time.Hour}, {time.Minute, time.Hour}, {2 * time.Minute, time.Second}} {
		g.extend(began.Add(extension.left), extension.ttl)
	}
	if g.expired() {
		t.Error("expired before any deadline")
	}
	in.Close()
	var left []time.Duration
	for lines := bufio.NewScanner(out); lines.Scan(); {
		at, err := strconv.ParseInt(strings.TrimPrefix(lines.Text(), "until "), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, time.Duration(at)-sinceBoot()+time.Since(began))
	}
	if len(left) != 2 {
		t.Fatalf("want 2 lines, have %v", left)
	}
	for i, want := range []time.Duration{time.Minute - 50*time.Millisecond, 2*time.Minute - 20*time.Millisecond} {
		if off := (left[i] - want).Abs(); off > time.Millisecond {
			t.Errorf("the kill time is %v after the start, want %v", left[i], want)
		}
	}
}

// An extension that was sent too late does not count.
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
