package renew

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
	"github.com/dibslock/dibs/internal/load"
)

// A probe waits until it is known how long goroutines wait in this process, and then as long as
// an answer may wait.
func TestProbeWaitsForOwnDelay(t *testing.T) {
	const second = time.Second
	for _, test := range []struct {
		name         string
		waited, next time.Duration
		text         string
	}{
		{"idle process", 0, firstProbe, errNoAnswer.Error()},
		{"process that computes", 300 * time.Millisecond, 1200 * time.Millisecond, "this process was late by 300ms"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var fs flights[*holder]
			var heard load.Heard
			fs.add(&flight[*holder]{deadline: 20 * second})
			if f, measure := fs.probe(firstProbe-1, heard); f != nil || measure {
				t.Error("a probe is due too early")
			}
			for _, first := range []bool{true, false} {
				if f, measure := fs.probe(firstProbe, heard); f != nil || measure != first {
					t.Errorf("probe %t, measured %t, want it measured once before", f != nil, measure)
				}
			}
			if fs.next(heard) != clock.Never {
				t.Error("a probe does not wait for the measurement")
			}
			fs.measured(firstProbe, firstProbe+test.waited)
			if at := fs.next(heard); at != test.next {
				t.Errorf("the probe is due at %v, want %v", at, test.next)
			}
			if f, measure := fs.probe(test.next, heard); f == nil || measure {
				t.Error("no probe")
			}
			if err := fs.whyUnanswered(); !strings.Contains(err.Error(), test.text) || !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("got %q, want %q in it", err, test.text)
			}
		})
	}
}

// A flight counts as broken if a later request is answered and the flight took several times as
// long. A single overtaking answer is normal.
func TestOvertakenFlights(t *testing.T) {
	const second = time.Second
	for name, test := range map[string]struct {
		sent, now time.Duration
		heard     load.Heard
		broken    bool
	}{
		"overtaken":              {second, 1251 * ms, load.Heard{Sent: second + 1}, true},
		"overtaken just now":     {second, 1250 * ms, load.Heard{Sent: second + 1}, false},
		"not overtaken":          {second, 9 * second, load.Heard{Sent: second}, false},
		"slow store":             {second, 5 * second, load.Heard{Sent: second + 1, Took: second}, false},
		"slow store, much later": {second, 5*second + 1, load.Heard{Sent: second + 1, Took: second}, true},
	} {
		var fs flights[*holder]
		f := &flight[*holder]{sent: test.sent}
		fs.add(f)
		if broken := fs.removeOvertaken(test.now, test.heard); (len(broken) == 1) != test.broken || (len(fs.list) == 0) != test.broken {
			t.Errorf("%s: %d broken, %d awaited", name, len(broken), len(fs.list))
		}
	}
}
