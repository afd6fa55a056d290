package main

import (
	"testing"
	"time"
)

func TestMachine(t *testing.T) {
	start := time.Now().Add(-time.Minute)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	m := &machine{from: start}
	m.sample(at(250), 0)                    // runs
	m.sample(at(500), 80*time.Millisecond)  // the host takes 80 ms
	m.sample(at(750), 100*time.Millisecond) // and 20 ms
	m.sample(at(1100), 100*time.Millisecond)
	m.sample(at(2350), 100*time.Millisecond) // suspended for a second
	m.from, m.stolen = time.Now(), stolenTime()
	for _, test := range []struct {
		from, to int
		want     time.Duration
	}{
		{0, 250, 0},
		{0, 251, 80 * time.Millisecond},
		{499, 700, 80 * time.Millisecond},
		{500, 750, 20 * time.Millisecond},
		{750, 1100, 0}, // 100 ms late: a busy machine
		{1000, 1200, time.Second},
		{2350, 3000, 0},
		{0, 9000, time.Second},
	} {
		if got := m.lost(at(test.from), at(test.to)); got != test.want {
			t.Errorf("from %d to %d ms: lost %v, want %v", test.from, test.to, got, test.want)
		}
	}
}

func TestParseStolen(t *testing.T) {
	for stat, want := range map[string]time.Duration{
		"cpu  10 20 30 40 50 60 70 300 0 0\ncpu0 1 1 1 1 1 1 1 9 0 0\n": 1500 * time.Millisecond,
		"cpu  10 20 30\n":          0,
		"":                         0,
		"intr 1 2 3 4 5 6 7 8 9\n": 0,
	} {
		if got := parseStolen([]byte(stat), 2); got != want {
			t.Errorf("%q: %v, want %v", stat, got, want)
		}
	}
}
