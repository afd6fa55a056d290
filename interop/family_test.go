package interop

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// Readers, permits and sets keep everybody else out, and are kept out, though other
// libraries know only who holds alone. Nobody destroys what the other has there.
func TestSharedAndMultiLocksExcludeOthers(t *testing.T) {
	t.Parallel()
	s := open(t)
	for what, try := range map[string]func(context.Context) (*dibs.Lease, error){
		"reader":  func(ctx context.Context) (*dibs.Lease, error) { return s.dibs.RWMutex(key).TryRLock(ctx) },
		"writer":  func(ctx context.Context) (*dibs.Lease, error) { return s.dibs.RWMutex(key).TryLock(ctx) },
		"permits": func(ctx context.Context) (*dibs.Lease, error) { return s.dibs.Semaphore(key, 3).TryAcquire(ctx, 2) },
		"set":     func(ctx context.Context) (*dibs.Lease, error) { return s.dibs.All("order:41", key).TryLock(ctx) },
	} {
		for name, peer := range s.peers() {
			lease, err := try(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			// redislock reads the key before it says no, and reports its type instead.
			if _, err = peer.try(t.Context(), key, time.Minute); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
				wantTaken(t, name+" beside a "+what, err)
			}
			if err := lease.Extend(t.Context(), time.Minute); err != nil {
				t.Errorf("%s after %s has tried: %v", what, name, err)
			}
			if err := lease.Unlock(); err != nil {
				t.Errorf("%s after %s has tried: %v", what, name, err)
			}
			theirs, err := peer.try(t.Context(), key, time.Minute)
			must(t, theirs, err)
			if _, err := try(t.Context()); !errors.Is(err, dibs.ErrBusy) {
				t.Errorf("%s beside %s: %v, want busy", what, name, err)
			}
			s.wantValue(t, theirs.value())
			wantUnlocked(t, name, theirs)
		}
	}
}
