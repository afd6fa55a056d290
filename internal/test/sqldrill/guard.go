package sqldrill

import (
	"context"
	"errors"
	"testing"

	"github.com/dibslock/dibs"
)

// WantNoneStale lets guards race the end of their leases. race returns a guard's result: "stale" if
// another holder was granted the name while the guarded transaction was open.
func WantNoneStale(t *testing.T, guards int, race func(i int) (outcome string)) {
	t.Helper()
	outcomes := make(map[string]int)
	for i := range guards {
		outcomes[race(i)]++
	}
	if outcomes["stale"] > 0 {
		t.Errorf("%d of %d guarded transactions were not alone", outcomes["stale"], guards)
	}
	t.Logf("what came of %d guards: %v", guards, outcomes)
}

// GuardsChangedLeases calls guard with a resized lease, and in a nested call with the caller's
// lease.
func GuardsChangedLeases(t *testing.T, locks *dibs.Client, guard func(ctx context.Context) error) {
	t.Helper()
	l, err := locks.RWMutex("n").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := locks.RWMutex("n").Downgrade(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(guard(l.Context()), l.Unlock()); err != nil {
		t.Error(err)
	}
	err = locks.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
		return locks.Mutex("n").Do(ctx, guard, dibs.Reentrant())
	})
	if err != nil {
		t.Error(err)
	}
}
