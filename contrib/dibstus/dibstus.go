// Package dibstus locks tusd's uploads by a dibs store, so that several servers can share
// the storage for their uploads.
//
//	composer := handler.NewStoreComposer()
//	s3store.New(bucket, client).UseIn(composer)
//	dibstus.New(locks, dibs.TTL(10*time.Second)).UseIn(composer)
//
// A client that resumes an upload often comes back before its old request ends, and to
// another server. Its new request waits for the lock. The store notifies the old server,
// tusd ends the old request, and the new request acquires the lock.
//
// # Loss of the lease
//
// If the lease is lost, tusd ends the request, as if another request waited. A lost lease's
// context ends before the store can grant the lock to another request. But data read by the
// old request at that moment may still be written.
//
// # TTL
//
// After a server crashes, its uploads are locked for the TTL. The TTL should be shorter than
// tusd's AcquireLockTimeout, which is 20 s by default. Then the next request waits and
// succeeds. With a longer TTL it fails. docs/adapters.md explains more.
//
// # Versions
//
// Tested with v2.9.1 to v2.10.1 of github.com/tus/tusd/v2.
package dibstus

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/tus/tusd/v2/pkg/handler"
)

// ErrUnavailable is tusd's reply while the lock store is not available: status 503, so that clients
// try again. Unlike the dibs error, the reply does not contain the store's address. The hook
// AcquireEnd receives the cause.
var ErrUnavailable = handler.NewError("ERR_LOCK_STORE_UNAVAILABLE", "the lock store is not available", http.StatusServiceUnavailable)

// A Locker creates the uploads' locks. It is safe for concurrent use.
type Locker struct {
	locks   *dibs.Client
	options []dibs.Option
}

var _ handler.Locker = (*Locker)(nil)

// New returns a Locker. It does no I/O; a bad option makes Lock return ErrInvalid.
//
// An upload lock's name is "tus:" and the upload's ID. If a store cannot store this name, because
// it is too long or not UTF-8, it is "tus-sha256:" and the ID's hash. The option NoRenew makes long
// requests lose their locks.
func New(locks *dibs.Client, options ...dibs.Option) *Locker {
	return &Locker{locks: locks, options: options}
}

// UseIn adds this locker to a composer.
func (l *Locker) UseIn(composer *handler.StoreComposer) { composer.UseLocker(l) }

// NewLock returns an upload's lock, which is not held. It does no I/O. Only a single goroutine can
// use the lock.
func (l *Locker) NewLock(id string) (handler.Lock, error) {
	return &lock{mutex: l.locks.Mutex(dibsName(id), l.options...)}, nil
}

type lock struct {
	mutex *dibs.Mutex
	lease *dibs.Lease // nil while the lock is not held
}

// Lock acquires the lock. It calls requestUnlock once, in a goroutine, when another request waits
// for the lock, or when the lease is lost; but not after Unlock.
//
// If ctx ends, or if the option Wait ends the waiting, Lock returns handler.ErrLockTimeout, joined
// with the dibs error. If the store does not answer, it returns ErrUnavailable, joined with the
// dibs error.
func (l *lock) Lock(ctx context.Context, requestUnlock func()) error {
	lease, err := l.mutex.Lock(ctx)
	switch {
	case err == nil:
		l.lease = lease
		go watch(lease, requestUnlock)
		return nil
	case ctx.Err() != nil, errors.Is(err, dibs.ErrBusy):
		return fmt.Errorf("%w: %w", handler.ErrLockTimeout, err)
	case errors.Is(err, dibs.ErrUnavailable):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	default:
		return err
	}
}

// watch calls requestUnlock when the lease's request must end. It ends with the lease.
func watch(lease *dibs.Lease, requestUnlock func()) {
	select {
	case <-lease.Wanted():
	case <-lease.Context().Done():
	}
	if errors.Is(lease.Err(), dibs.ErrReleased) {
		return
	}
	requestUnlock()
}

// Unlock releases the lock. It returns ErrLost if the lease was lost, dibs.ErrUnavailable if the
// store did not answer, and ErrInvalid if the lock is not held.
func (l *lock) Unlock() error {
	if l.lease == nil {
		return fmt.Errorf("%w: unlock of an upload that is not locked", dibs.ErrInvalid)
	}
	lease := l.lease
	l.lease = nil
	return lease.Unlock()
}

// dibsName returns a lock's name in the store. The ID comes from a request's URL, so it can have
// any length and need not be UTF-8.
func dibsName(id string) string {
	plain := "tus:" + id
	if driver.CheckName(plain) == nil {
		return plain
	}
	return fmt.Sprintf("tus-sha256:%x", sha256.Sum256([]byte(id)))
}
