package interop

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// exclusion returns the columns for a library with the common form.
func exclusion() []column {
	return append(exclusionWithoutShared(), one("beside a reader", besideReader), one("beside a permit", besidePermit))
}

// exclusionWithoutShared is for a store without shared leases.
func exclusionWithoutShared() []column {
	return []column{
		one("dibs first", dibsFirst),
		one("theirs first", theirsFirst),
		one("theirs expires", theirsExpires),
		one("dibs expires", dibsExpires),
		one("their late release", theirLateRelease),
		one("dibs' late release", dibsLateRelease),
		one("their late extension", theirLateExtension),
		one("forced release", forcedRelease),
		one("their forced release", theirForcedRelease),
	}
}

func (r *row) key(name string) string { return r.prefix + name }

// readValue returns a key's value. It is a single step, because another client can change the key's
// type. The mode of a dibs lock in Redisson's form is no holder.
const readValue = `if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then return redis.call('GET', KEYS[1]) end
local holders = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if field ~= 'mode' then holders[#holders + 1] = field end
end
return holders`

// value returns the lock key's value: a string, the fields of a hash, or nil.
func (r *row) value(t *testing.T, name string) any {
	t.Helper()
	value := r.server.MustCmd(t, "EVAL", readValue, "1", r.key(name))
	fields, isHash := value.([]any)
	if !isHash {
		return value
	}
	texts := make([]string, len(fields))
	for i, field := range fields {
		texts[i] = field.(string)
	}
	return strings.Join(texts, " ")
}

func (r *row) wantValue(t *testing.T, name, want string) {
	t.Helper()
	if have := r.value(t, name); have != want {
		t.Errorf("the lock key holds %v, want %s", have, want)
	}
}

// acquire lets the library acquire a free lock.
func (r *row) acquire(t *testing.T, name string, ttl time.Duration) lock {
	t.Helper()
	l, err := r.theirs.try(t.Context(), name, ttl)
	if err != nil {
		t.Fatalf("theirs: %v", err)
	}
	r.wantValue(t, name, l.value())
	return l
}

// acquireExpiring lets the library acquire a free lock that expires soon.
func (r *row) acquireExpiring(t *testing.T, name string) lock {
	t.Helper()
	l, err := r.theirs.try(t.Context(), name, shortTTL)
	return must(t, l, err)
}

// extend lets the library extend its lock.
func (r *row) extend(t *testing.T, l lock) {
	t.Helper()
	ok, err := l.extend(t.Context(), longTTL)
	if !errors.Is(err, errUnsupported) && (err != nil || !ok) {
		t.Errorf("theirs: extend: %v, %v", ok, err)
	}
}

// release lets the library release its lock.
func (r *row) release(t *testing.T, name string, l lock) {
	t.Helper()
	ok, err := l.unlock(t.Context())
	if !errors.Is(err, errUnreported) && (err != nil || !ok) {
		t.Errorf("theirs: unlock: %v, %v", ok, err)
	}
	if have := r.value(t, name); have == l.value() {
		t.Error("theirs: the lock key still holds their value after unlock")
	}
}

// lock lets dibs wait for a lock, longer than any column needs.
func (r *row) lock(ctx context.Context, name string, options ...dibs.Option) (*dibs.Lease, error) {
	return r.dibs.Mutex(name).Lock(ctx, append(options, dibs.Wait(patience))...)
}

// tryHeld lets the library try to acquire a lock held by dibs, and returns its error. The try
// does not change the lock key.
func (r *row) tryHeld(t *testing.T, name string) error {
	t.Helper()
	value := r.value(t, name)
	_, err := r.theirs.try(t.Context(), name, longTTL)
	if have := r.value(t, name); have != value {
		t.Errorf("their try has changed the lock key from %v to %v", value, have)
	}
	return err
}

// wantBusy is for a name held by dibs.
func (r *row) wantBusy(t *testing.T, name string) {
	t.Helper()
	wantHeld(t, "theirs", r.tryHeld(t, name))
}

// wantHeldByDibs checks that a lease is held, also in the store.
func (r *row) wantHeldByDibs(t *testing.T, lease *dibs.Lease) {
	t.Helper()
	r.wantValue(t, lease.Name(), valueOf(lease))
	if err := lease.Extend(t.Context(), longTTL); err != nil {
		t.Errorf("dibs: extend: %v", err)
	}
}

func mustLease(t *testing.T, lease *dibs.Lease, err error) *dibs.Lease {
	t.Helper()
	if err != nil {
		t.Fatalf("dibs: %v", err)
	}
	return lease
}

func mustUnlock(t *testing.T, lease *dibs.Lease) {
	t.Helper()
	if err := lease.Unlock(); err != nil {
		t.Errorf("dibs: unlock: %v", err)
	}
}

// wantExpired checks that a lock was not acquired before the other side's lock expired.
func wantExpired(t *testing.T, begin time.Time) {
	t.Helper()
	if took := time.Since(begin); took < shortTTL-10*time.Millisecond {
		t.Errorf("acquired after %v, want at least %v", took, shortTTL)
	}
}

// refused checks the outcome of a request for a lock no longer held.
func refused(t *testing.T, what string, ok bool, err error) string {
	t.Helper()
	if errors.Is(err, errUnreported) {
		return "yes, but not reported"
	}
	if ok || err != nil {
		t.Errorf("theirs: %s: %v, %v: want that it is refused", what, ok, err)
	}
	return "yes"
}

// wantDone checks that a library executes a request that it should refuse: its trap is known.
func wantDone(t *testing.T, what string, ok bool, err error) {
	t.Helper()
	if !errors.Is(err, errUnreported) && (err != nil || !ok) {
		t.Errorf("theirs: %s: %v, %v: want that it changes the lock of dibs, as it is known to do", what, ok, err)
	}
}

func dibsFirst(t *testing.T, r *row, name string) string {
	r.holdFirst(t, name, r.wantBusy)
	return "yes"
}

// holdFirst lets dibs hold a lock while their try is checked, and then the library.
func (r *row) holdFirst(t *testing.T, name string, checkTry func(t *testing.T, name string)) {
	t.Helper()
	lease, err := r.dibs.Mutex(name).TryLock(t.Context())
	mustLease(t, lease, err)
	checkTry(t, name)
	r.wantHeldByDibs(t, lease)
	mustUnlock(t, lease)
	r.release(t, name, r.acquire(t, name, longTTL))
}

func theirsFirst(t *testing.T, r *row, name string) string {
	l := r.acquire(t, name, longTTL)
	_, err := r.dibs.Mutex(name).TryLock(t.Context())
	busy, ok := errors.AsType[*dibs.BusyError](err)
	if !ok || string(busy.Holder) != l.value() {
		t.Fatalf("dibs: %v, want a BusyError with the holder %s", err, l.value())
	}
	type outcome struct {
		lease *dibs.Lease
		err   error
	}
	acquired := make(chan outcome, 1)
	go func() {
		lease, err := r.lock(t.Context(), name)
		acquired <- outcome{lease, err}
	}()
	waitUntilQueued(t, r.dibs, name, 1)
	r.extend(t, l)
	r.release(t, name, l)
	o := <-acquired
	lease := mustLease(t, o.lease, o.err)
	r.wantHeldByDibs(t, lease)
	mustUnlock(t, lease)
	return "yes"
}

func theirsExpires(t *testing.T, r *row, name string) string {
	begin := time.Now()
	r.acquireExpiring(t, name)
	lease, err := r.lock(t.Context(), name)
	mustLease(t, lease, err)
	wantExpired(t, begin)
	r.wantHeldByDibs(t, lease)
	mustUnlock(t, lease)
	return "yes"
}

func dibsExpires(t *testing.T, r *row, name string) string {
	begin := time.Now()
	lease, err := r.dibs.Mutex(name).TryLock(t.Context(), dibs.TTL(shortTTL), dibs.NoRenew())
	mustLease(t, lease, err)
	l, err := r.theirs.lock(t.Context(), name, longTTL)
	must(t, l, err)
	wantExpired(t, begin)
	r.wantValue(t, name, l.value())
	wantLoss(t, lease, dibs.ReasonExpired)
	r.release(t, name, l)
	return "yes"
}

func theirLateRelease(t *testing.T, r *row, name string) string {
	l := r.acquireExpiring(t, name)
	lease, err := r.lock(t.Context(), name, dibs.TTL(renewedTTL))
	mustLease(t, lease, err)
	ok, err := l.unlock(t.Context())
	if r.lateRelease == deletes {
		wantDone(t, "unlock", ok, err)
		wantLoss(t, lease, dibs.ReasonMissing)
		return "no: " + string(deletes)
	}
	cell := refused(t, "unlock", ok, err)
	r.wantHeldByDibs(t, lease)
	mustUnlock(t, lease)
	return cell
}

func dibsLateRelease(t *testing.T, r *row, name string) string {
	lease, err := r.dibs.Mutex(name).TryLock(t.Context(), dibs.TTL(shortTTL), dibs.NoRenew())
	mustLease(t, lease, err)
	l, err := r.theirs.lock(t.Context(), name, longTTL)
	must(t, l, err)
	if err := lease.Unlock(); !errors.Is(err, dibs.ErrLost) {
		t.Errorf("dibs: unlock: %v, want ErrLost", err)
	}
	r.wantValue(t, name, l.value())
	r.extend(t, l)
	r.release(t, name, l)
	return "yes"
}

// The lock key is deleted, and the TTL of their lock has not passed: so their library must ask the
// server.
func theirLateExtension(t *testing.T, r *row, name string) string {
	l := r.acquire(t, name, longTTL)
	r.server.MustCmd(t, "DEL", r.key(name))
	lease, err := r.dibs.Mutex(name).TryLock(t.Context(), dibs.TTL(renewedTTL))
	mustLease(t, lease, err)
	ok, err := l.extend(t.Context(), longTTL)
	cell := "no: " + string(r.lateExtension)
	switch {
	case errors.Is(err, errUnsupported):
		cell = "no extension"
	case r.lateExtension == refuses:
		cell = refused(t, "extend", ok, err)
	case r.lateExtension == overwrites:
		wantDone(t, "extend", ok, err)
		wantLoss(t, lease, dibs.ReasonMissing)
		r.server.MustCmd(t, "DEL", r.key(name))
		return cell
	default:
		wantDone(t, "extend", ok, err)
	}
	r.wantHeldByDibs(t, lease)
	mustUnlock(t, lease)
	return cell
}

func besideReader(t *testing.T, r *row, name string) string {
	return besideShared(t, r, name, func(ctx context.Context) (*dibs.Lease, error) { return r.dibs.RWMutex(name).Reader().TryLock(ctx) })
}

func besidePermit(t *testing.T, r *row, name string) string {
	return besideShared(t, r, name, func(ctx context.Context) (*dibs.Lease, error) {
		return r.dibs.Semaphore(name, 3).Permits(1).TryLock(ctx)
	})
}

// besideShared checks that two shared leases exclude the library until both end.
func besideShared(t *testing.T, r *row, name string, try func(context.Context) (*dibs.Lease, error)) string {
	first, err := try(t.Context())
	mustLease(t, first, err)
	second, err := try(t.Context())
	mustLease(t, second, err)
	r.wantBusy(t, name)
	mustUnlock(t, first)
	r.wantBusy(t, name)
	if err := second.Extend(t.Context(), longTTL); err != nil {
		t.Errorf("dibs: extend: %v", err)
	}
	mustUnlock(t, second)
	l := r.acquire(t, name, longTTL)
	if _, err := try(t.Context()); !errors.Is(err, dibs.ErrBusy) {
		t.Errorf("dibs: %v, want ErrBusy", err)
	}
	r.release(t, name, l)
	return "yes"
}

// dibs' lock key is deleted by hand, and the library acquires the lock. dibs detects it when it
// renews its lease, after a third of the TTL.
func forcedRelease(t *testing.T, r *row, name string) string {
	lease, err := r.dibs.Mutex(name).TryLock(t.Context(), dibs.TTL(renewedTTL))
	mustLease(t, lease, err)
	r.server.MustCmd(t, "DEL", r.key(name))
	l := r.acquire(t, name, longTTL)
	wantLoss(t, lease, dibs.ReasonMissing)
	r.wantValue(t, name, l.value())
	r.release(t, name, l)
	return "yes"
}

// wantLoss waits until dibs detects a loss, and checks its reason. If a renewal finds that the lock
// key is missing, the reason differs from the one at the lease's end.
func wantLoss(t *testing.T, lease *dibs.Lease, reason dibs.Reason) {
	t.Helper()
	select {
	case <-lease.Context().Done():
	case <-time.After(patience):
		t.Fatalf("dibs: the loss was not detected within %v", patience)
	}
	lost, ok := errors.AsType[*dibs.LostError](lease.Err())
	if !ok || lost.Reason != reason {
		t.Errorf("dibs: %v, want a LostError with %q", lease.Err(), reason)
	}
}

// The library releases dibs' lock by its own forced release.
func theirForcedRelease(t *testing.T, r *row, name string) string {
	lease, err := r.dibs.Mutex(name).TryLock(t.Context(), dibs.TTL(renewedTTL))
	mustLease(t, lease, err)
	ok, err := r.force(t.Context(), name)
	if errors.Is(err, errUnsupported) {
		mustUnlock(t, lease)
		return "none"
	}
	if err != nil || !ok {
		t.Fatalf("theirs: force: %v, %v", ok, err)
	}
	if value := r.value(t, name); value != nil {
		t.Errorf("after their forced release the lock key holds %v", value)
	}
	wantLoss(t, lease, dibs.ReasonMissing)
	return "yes"
}

// force releases any owner's lock, if the library can.
func (r *row) force(ctx context.Context, name string) (bool, error) {
	if driver, ok := r.theirs.(*external); ok {
		return driver.force(ctx, name)
	}
	return false, errUnsupported
}
