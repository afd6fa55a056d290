package sqlstore

import (
	"context"
	"testing"
	"testing/synctest"
)

// Acquires of names that existed start fewer removals.
func TestSweep(t *testing.T) {
	t.Parallel()
	for existed, each := range map[bool]int{false: 500, true: 5000} {
		synctest.Test(t, func(t *testing.T) {
			u := &Unused{}
			removals := 0
			remove := func(_ context.Context, names int) error {
				if removals++; names != lookedAt {
					t.Errorf("%d names", names)
				}
				return nil
			}
			for round := range 3 {
				for range each - 1 {
					u.Sweep(existed, remove)
				}
				synctest.Wait()
				if removals != round {
					t.Fatalf("existed %t, round %d: too early", existed, round)
				}
				u.Sweep(existed, remove)
				synctest.Wait()
				if removals != round+1 {
					t.Fatalf("existed %t, round %d: no removal", existed, round)
				}
			}
		})
	}
}
