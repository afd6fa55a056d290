package dibs

import (
	"errors"
	"strings"
	"testing"
	"time"

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
			var fs flights
			var heard load.Heard
			fs.add(&flight{deadline: 20 * second})
			if fs.mustMeasure(firstProbe-1, heard) || fs.probe(firstProbe-1, heard) != nil {
				t.Error("a probe is due too early")
			}
			if !fs.mustMeasure(firstProbe, heard) || fs.mustMeasure(firstProbe, heard) {
				t.Error("it is not measured once")
			}
			if fs.probe(firstProbe, heard) != nil || fs.next(heard) != never {
				t.Error("a probe does not wait for the measurement")
			}
			fs.measured(firstProbe, firstProbe+test.waited)
			if at := fs.next(heard); at != test.next {
				t.Errorf("the probe is due at %v, want %v", at, test.next)
			}
			if fs.probe(test.next, heard) == nil {
				t.Error("no probe")
			}
			if err := fs.whyUnanswered(); !strings.Contains(err.Error(), test.text) || !errors.Is(err, ErrUnavailable) {
				t.Errorf("got %q, want %q in it", err, test.text)
			}
		})
	}
}
