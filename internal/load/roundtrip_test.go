package load

import (
	"testing"
	"time"
)

// An operation with a second should have time for two tries, unless the store is so slow that
// neither could be answered.
func TestAttemptDeadlineOfASlowStore(t *testing.T) {
	for _, c := range []struct {
		name  string
		took  []time.Duration
		first time.Duration // deadline of the first try, in an operation with a second
	}{
		{"nothing is known", nil, 500 * ms},
		{"quick", []time.Duration{ms}, 500 * ms},
		{"slow", []time.Duration{300 * ms}, 600 * ms},
		{"very slow", []time.Duration{400 * ms}, 1000 * ms},
		{"slower than the operation may last", []time.Duration{5000 * ms}, 1000 * ms},
		{"one was slow, the next was not", []time.Duration{400 * ms, ms}, 500 * ms},
		{"slow and slower", []time.Duration{200 * ms, 300 * ms, 280 * ms}, 560 * ms},
	} {
		var trip RoundTrip
		for _, took := range c.took {
			trip.Observe(took)
		}
		now := time.Unix(1, 0)
		if first := trip.AttemptDeadline(now, now.Add(time.Second)).Sub(now); first != c.first {
			t.Errorf("%s: %v for the first try, want %v", c.name, first, c.first)
		}
		if soon := now.Add(40 * ms); trip.AttemptDeadline(now, soon) != soon {
			t.Errorf("%s: 40ms were divided", c.name)
		}
	}
}
