package interop

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// dibs' shared locks and multi-locks, and other libraries' exclusive locks, should exclude each
// other. A failed try by either side should not change the other's lock.
func TestSharedAndMultiLocksExcludeOthers(t *testing.T) {
	t.Parallel()
	s := open(t)
	for what, try := range map[string]func(context.Context) (*dibs.Lease, error){
		"reader":     func(ctx context.Context) (*dibs.Lease, error) { return s.dibs.RWMutex(key).TryRLock(ctx) },
		"writer":     func(ctx context.Context) (*dibs.Lease, error) { return s.dibs.RWMutex(key).TryLock(ctx) },
		"permits":    func(ctx context.Context) (*dibs.Lease, error) { return s.dibs.Semaphore(key, 3).TryAcquire(ctx, 2) },
		"multi-lock": func(ctx context.Context) (*dibs.Lease, error) { return s.dibs.All("order:41", key).TryLock(ctx) },
	} {
		for name, peer := range s.peers() {
			lease, err := try(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			_, err = peer.try(t.Context(), key, time.Minute)
			wantHeld(t, name+" while a "+what+" holds it", err)
			if err := lease.Extend(t.Context(), time.Minute); err != nil {
				t.Errorf("%s after a try of %s: %v", what, name, err)
			}
			if err := lease.Unlock(); err != nil {
				t.Errorf("%s after a try of %s: %v", what, name, err)
			}
			theirs, err := peer.try(t.Context(), key, time.Minute)
			must(t, theirs, err)
			if _, err := try(t.Context()); !errors.Is(err, dibs.ErrBusy) {
				t.Errorf("%s while %s holds it: %v, want ErrBusy", what, name, err)
			}
			s.wantValue(t, theirs.value())
			wantUnlocked(t, name, theirs)
		}
	}
}
