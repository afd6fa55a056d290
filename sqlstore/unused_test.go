package sqlstore

import (
	"context"
	"testing"
	"testing/synctest"
)

// Acquires of existing names should start fewer removals.
func TestRemoveUnused(t *testing.T) {
	t.Parallel()
	for existed, each := range map[bool]int{false: 500, true: 5000} {
		synctest.Test(t, func(t *testing.T) {
			removals := 0
			d := NewDatabase(plain{}, func(_ context.Context, _ bool, _ string, args []any, read func(Rows) error) error {
				if removals++; args[0] != inspected {
					t.Errorf("%d names", args[0])
				}
				return read(&reply{})
			})
			d.unused.counted = 0
			for round := range 3 {
				for range each - 1 {
					d.RemoveUnused(existed)
				}
				synctest.Wait()
				if removals != round {
					t.Fatalf("existed %t, round %d: too early", existed, round)
				}
				d.RemoveUnused(existed)
				synctest.Wait()
				if removals != round+1 {
					t.Fatalf("existed %t, round %d: no removal", existed, round)
				}
			}
		})
	}
}
