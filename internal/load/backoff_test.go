package load_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/load"
)

// attempts returns the times of the attempts during an outage, since its beginning, if each attempt
// takes a given time.
func attempts(b *load.Backoff, outage, each time.Duration) (at []time.Duration) {
	begin := time.Now()
	for now := begin; now.Sub(begin) < outage; {
		at = append(at, now.Sub(begin))
		now = now.Add(each)
		now = now.Add(b.Next(now))
	}
	return at
}

// After an outage of any length, an attempt should follow soon, and few should have been made
// during it.
func TestPausesAreAShareOfTheOutage(t *testing.T) {
	const shortest, longest, part = 10 * time.Millisecond, time.Second, 4
	for range 20 {
		b := load.Backoff{Shortest: shortest, Longest: longest, Part: part}
		at := attempts(&b, time.Hour, 0)
		for i := 1; i < len(at); i++ {
			pause, most := at[i]-at[i-1], min(max(at[i-1]/part, shortest), longest)
			if pause < most/2 || pause > most {
				t.Fatalf("a pause of %v after %v, want %v to %v", pause, at[i-1], most/2, most)
			}
		}
		if n := len(at); n > 2*int(time.Hour/longest)+100 {
			t.Errorf("%d attempts in an hour", n)
		}
		b = load.Backoff{Shortest: shortest, Longest: time.Hour, Part: part}
		if n := len(attempts(&b, 10*time.Second, 0)); n < 15 || n > 60 {
			t.Errorf("%d attempts in 10 s", n)
		}
	}
}

// Clients that notice an outage together should not try together.
func TestPausesHaveJitter(t *testing.T) {
	now, seen := time.Now(), make(map[time.Duration]bool)
	for range 100 {
		b := load.Backoff{Shortest: time.Second, Longest: time.Second, Part: 2}
		seen[b.Next(now)] = true
	}
	if len(seen) < 90 {
		t.Errorf("%d different pauses of 100 clients", len(seen))
	}
}

// After a Reset an outage begins anew.
func TestReset(t *testing.T) {
	const shortest = 10 * time.Millisecond
	b := load.Backoff{Shortest: shortest, Longest: time.Minute, Part: 2}
	now := time.Now()
	pause := time.Duration(0)
	for begin := now; now.Sub(begin) < time.Minute; now = now.Add(pause) {
		pause = b.Next(now)
	}
	if pause < 5*time.Second || !b.Failing() {
		t.Errorf("a pause of %v after a minute", pause)
	}
	b.Reset()
	if b.Failing() {
		t.Error("failing after a Reset")
	}
	if pause := b.Next(now.Add(time.Hour)); pause > shortest {
		t.Errorf("a pause of %v after a Reset", pause)
	}
}

// Failures far apart must not count as an outage.
func TestRareFailures(t *testing.T) {
	b := load.Backoff{Shortest: time.Millisecond, Longest: time.Second, Part: 2}
	now := time.Now()
	for range 100 {
		if pause := b.Next(now); pause > time.Millisecond {
			t.Fatalf("a pause of %v after a single failure", pause)
		}
		now = now.Add(time.Second)
	}
}
