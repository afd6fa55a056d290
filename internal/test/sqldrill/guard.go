package sqldrill

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
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

// A Revoker is a store whose leases RevokeAndAcquire can end.
type Revoker interface {
	driver.Store
	driver.Revoker
}

// RevokeAndAcquire ends a lease, then sends the next holder's request, and reports whether the
// request was granted. If the outcome of the revocation is unknown, it sends no request: the next
// holder can have the same token, and would then be granted the old lease.
func RevokeAndAcquire(ctx context.Context, s Revoker, l *dibs.Lease, next driver.AcquireRequest) (granted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // a busy machine's limit
	defer cancel()
	if _, err := s.Revoke(ctx, driver.RevokeRequest{Name: next.Name, Fence: l.Fence()}); err != nil {
		return false, err
	}
	reply, err := s.Acquire(ctx, next)
	return reply.Held, err
}

// GuardsChangedLeases calls guard with a resized lease, and in a nested call with the caller's
// lease.
func GuardsChangedLeases(t *testing.T, locks *dibs.Client, guard func(ctx context.Context) error) {
	t.Helper()
	l, err := locks.RWMutex("n").Writer().Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Downgrade(t.Context()); err != nil {
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
