// Package dibscertmagic locks CertMagic's storage, and Caddy's, by a dibs store.
//
// Instances sharing a storage ask the certificate authority once for each certificate,
// because CertMagic locks it. Many kinds of storage lock by polling, or by a file or record
// that looks abandoned when its owner is slow. [New] replaces only the locks:
//
//	certmagic.Default.Storage = dibscertmagic.New(storage, locks)
//
// All instances must lock in the same way. While an update replaces the instances' locks
// gradually, an old and a new instance can ask for the same certificate.
//
// # Loss of the lease
//
// CertMagic gives its work no context that ends with the lock. If the lease is lost, the
// work continues, and a second instance may ask for the same certificate. CertMagic permits
// this. The hook dibs.Hooks Lost reports the loss. Before each further attempt CertMagic renews
// the lock, which acquires it again, and then searches the storage for a certificate
// obtained by another instance meanwhile. docs/adapters.md explains more.
//
// # Versions
//
// Tested with v0.25.1 to v0.25.6 of github.com/caddyserver/certmagic.
package dibscertmagic

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// A Storage is a CertMagic storage with dibs locks. It is safe for concurrent use.
type Storage struct {
	certmagic.Storage // all but the locks

	locks   *dibs.Client
	options []dibs.Option
	held    holds
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// New returns a storage with dibs locks. It does no I/O. The given storage's locks are not used.
//
// A CertMagic lock's name in the store is "certmagic:" and its own name, such as
// "certmagic:issue_cert_example.com". If a store cannot store this name, because it is too long or
// not UTF-8, it is "certmagic-sha256:" and the hash of CertMagic's name.
//
// The TTL is how long the other instances wait after a crash. The option NoRenew is not for this
// package: nothing else renews the lease during an attempt. Wait limits how long a Lock waits for
// other processes; by default it waits until its context ends.
func New(storage certmagic.Storage, locks *dibs.Client, options ...dibs.Option) *Storage {
	return &Storage{Storage: storage, locks: locks, options: options}
}

// Lock acquires a name's lock. It waits until other goroutines and processes have released it, or
// ctx ends. Errors are those from dibs.Mutex.Lock: ErrBusy if the waiting is over, with ctx's cause
// if ctx ended it.
func (s *Storage) Lock(ctx context.Context, name string) error {
	if err := s.held.reserve(ctx, name); err != nil {
		return err
	}
	lease, err := s.mutex(name).Lock(ctx)
	if err != nil {
		s.held.remove(name, nil)
		return err
	}
	s.held.replace(name, nil, lease)
	return nil
}

// TryLock acquires a name's lock if it is free and nobody waits for it. Otherwise it returns false
// at once.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	if !s.held.tryReserve(name) {
		return false, nil
	}
	lease, err := s.mutex(name).TryLock(ctx)
	if err == nil {
		return s.held.replace(name, nil, lease), nil
	}
	s.held.remove(name, nil)
	if errors.Is(err, dibs.ErrBusy) {
		return false, nil
	}
	return false, err
}

// Unlock releases a name's lock. The context is not used: Unlock sets its own time limit. It
// returns ErrUnavailable if the store did not answer; the lock is free after the TTL. If this
// Storage does not hold the lock, it returns ErrInvalid. If the lease was lost, it returns nil,
// because there is nothing to release: after an error CertMagic would unlock the name again when
// the process ends. The hook Lost reports the loss.
func (s *Storage) Unlock(_ context.Context, name string) error {
	lease := s.held.lease(name)
	if lease == nil || !s.held.remove(name, lease) {
		return errNotHeld("unlock", name)
	}
	if err := lease.Unlock(); !errors.Is(err, dibs.ErrLost) {
		return err
	}
	return nil
}

// RenewLockLease makes sure that a name's lock is held, before an attempt to obtain a certificate.
// It returns nil if the lease is held. It does not make the lease longer, because the Client renews
// it: a longer lease would block the others longer after a crash. If the lease is lost,
// RenewLockLease acquires the lock again, as Lock does. RenewLockLease sends no request to detect a
// loss: the Client notices a revocation by a notification, or at its next renewal, after a third of
// the TTL. If this Storage does not hold the lock, RenewLockLease returns ErrInvalid.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	lost := s.held.lease(name)
	switch {
	case lost == nil:
		return errNotHeld("renew", name)
	case lost.Err() == nil:
		return nil
	}
	// If the store still contains the lease, Unlock removes it, so the new lease need not wait for
	// it. Its error is the loss, which the new lease repairs.
	_ = lost.Unlock()
	lease, err := s.mutex(name).Lock(ctx)
	if err != nil {
		return err
	}
	if !s.held.replace(name, lost, lease) { // Unlock was called meanwhile
		return errors.Join(errNotHeld("renew", name), lease.Unlock())
	}
	return nil
}

// String returns the storage's name, for CertMagic's log.
func (s *Storage) String() string {
	if named, ok := s.Storage.(fmt.Stringer); ok {
		return named.String() + " with locks of dibs"
	}
	return fmt.Sprintf("%T with locks of dibs", s.Storage)
}

func (s *Storage) mutex(name string) *dibs.Mutex {
	return s.locks.Mutex(dibsName(name), s.options...)
}

// dibsName returns a lock's name in the store. CertMagic's names can have any length, and contain a
// name sent by a client in a TLS handshake.
func dibsName(name string) string {
	plain := "certmagic:" + name
	if driver.CheckName(plain) == nil {
		return plain
	}
	return fmt.Sprintf("certmagic-sha256:%x", sha256.Sum256([]byte(name)))
}

func errNotHeld(op, name string) error {
	return fmt.Errorf("%w: %s %q: not held by this storage", dibs.ErrInvalid, op, name)
}
