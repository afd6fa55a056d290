package pgstore

import (
	"testing"
	"time"
)

// Many clients refused by a server make few attempts, and not in step.
func TestListenersAreNotInStep(t *testing.T) {
	const clients, outage, slot = 40, 10 * time.Second, 100 * time.Millisecond
	start := time.Now()
	attempts, slots := 0, make(map[time.Duration]int)
	for range clients {
		backoff := listenBackoff()
		for at := time.Duration(0); at < outage; at += backoff.Next(start.Add(at)) {
			attempts++
			slots[at/slot]++
		}
	}
	if most := 14 * clients; attempts > most {
		t.Errorf("%d attempts in %v, want at most %d", attempts, outage, most)
	}
	for at, n := range slots {
		if at >= 20 && n > clients/2 { // after 2 s
			t.Errorf("%d of %d clients make an attempt at %v", n, clients, at*slot) //nolint:durationcheck // at is a number of slots
		}
	}
	t.Logf("FIGURE %d attempts of %d clients in %v", attempts, clients, outage)
}
