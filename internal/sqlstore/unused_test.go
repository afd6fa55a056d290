package sqlstore

import (
	"context"
	"testing"
)

// Acquires of names that existed start fewer removals.
func TestSweep(t *testing.T) {
	t.Parallel()
	for existed, each := range map[bool]int{false: 500, true: 5000} {
		u := &Unused{}
		for round := range 3 {
			done := make(chan int, 1)
			remove := func(_ context.Context, names int) error {
				done <- names
				return nil
			}
			for range each - 1 {
				u.Sweep(existed, remove)
			}
			if len(done) > 0 {
				t.Fatalf("existed %t, round %d: too early", existed, round)
			}
			u.Sweep(existed, remove)
			if names := <-done; names != lookedAt {
				t.Errorf("%d names", names)
			}
			waitIdle(u)
		}
	}
}

func waitIdle(u *Unused) {
	for {
		u.mu.Lock()
		idle := !u.running
		u.mu.Unlock()
		if idle {
			return
		}
	}
}
