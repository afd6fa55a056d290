package interop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// The columns for a library whose lock key has another form, such as a hash. It and dibs cannot
// wait for each other. Each refuses the other's lock with an error, and leaves it alone.

func refusal() []column {
	return []column{
		one("dibs first", dibsFirstRefusal),
		one("theirs first", theirsFirstRefusal),
		one("beside a reader", besideReaderRefusal),
		one("late release", lateReleaseRefusal),
		one("their forced release", theirForcedRelease),
	}
}

func refusalUnderLoad() column {
	return column{"4 + 4 workers for 5 s", []string{"turns", "errors"}, refuseUnderLoad}
}

// wantRefusedByThem checks that the library refuses dibs' key.
func (r *row) wantRefusedByThem(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || errors.Is(err, errHeld) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("theirs: %s: error %v, want WRONGTYPE", what, err)
	}
}

func (r *row) tryRefused(t *testing.T, name string) {
	t.Helper()
	r.wantRefusedByThem(t, "try", r.tryHeld(t, name))
}

func dibsFirstRefusal(t *testing.T, r *row, name string) string {
	r.holdFirst(t, name, r.tryRefused)
	return "error"
}

func theirsFirstRefusal(t *testing.T, r *row, name string) string {
	l := r.acquire(t, name, longTTL)
	for what, acquire := range map[string]func(context.Context) (*dibs.Lease, error){
		"try":        func(ctx context.Context) (*dibs.Lease, error) { return r.dibs.Mutex(name).TryLock(ctx) },
		"lock":       func(ctx context.Context) (*dibs.Lease, error) { return r.lock(ctx, name) },
		"try shared": func(ctx context.Context) (*dibs.Lease, error) { return r.dibs.RWMutex(name).Reader().TryLock(ctx) },
	} {
		if _, err := acquire(t.Context()); !errors.Is(err, dibs.ErrWrongType) {
			t.Errorf("dibs: %s: %v, want ErrWrongType", what, err)
		}
	}
	r.wantValue(t, name, l.value())
	r.extend(t, l)
	r.release(t, name, l)
	lease, err := r.dibs.Mutex(name).TryLock(t.Context())
	mustUnlock(t, mustLease(t, lease, err))
	return "error"
}

func besideReaderRefusal(t *testing.T, r *row, name string) string {
	lease, err := r.dibs.RWMutex(name).Reader().TryLock(t.Context())
	mustLease(t, lease, err)
	r.tryRefused(t, name)
	if err := lease.Extend(t.Context(), longTTL); err != nil {
		t.Errorf("dibs: extend: %v", err)
	}
	mustUnlock(t, lease)
	return "error"
}

// Each side releases a lock lost to the other side.
func lateReleaseRefusal(t *testing.T, r *row, name string) string {
	l := r.acquire(t, name, longTTL)
	r.server.MustCmd(t, "DEL", r.key(name))
	lease, err := r.dibs.Mutex(name).TryLock(t.Context(), dibs.NoRenew())
	mustLease(t, lease, err)
	if ok, err := l.unlock(t.Context()); ok {
		t.Errorf("theirs: unlock: %v, %v: want that it is refused", ok, err)
	}
	r.wantHeldByDibs(t, lease)

	r.server.MustCmd(t, "DEL", r.key(name))
	l = r.acquire(t, name, longTTL)
	if err := lease.Unlock(); !errors.Is(err, dibs.ErrLost) && !errors.Is(err, dibs.ErrWrongType) {
		t.Errorf("dibs: unlock: %v, want ErrLost or ErrWrongType", err)
	}
	r.wantValue(t, name, l.value())
	r.release(t, name, l)
	return "error"
}

// Under load most requests on each side fail. The lock should still have at most one holder.
func refuseUnderLoad(t *testing.T, r *row, name string) []string {
	l := load{
		counter: name + ":counter", workers: 4, long: 5 * time.Second,
		ttl: 5 * time.Second, work: 3 * time.Millisecond, pause: 30 * time.Millisecond,
	}
	mine, theirs := r.hammerTogether(t, name, l)
	return []string{fmt.Sprintf("%d, %d", mine.turns, theirs.turns), fmt.Sprintf("%d, %d", mine.failures, theirs.failures)}
}
