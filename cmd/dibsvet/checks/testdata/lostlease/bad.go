// Package lostlease has leases that nobody unlocks.
package lostlease

import (
	"context"
	"errors"

	"github.com/dibslock/dibs"
)

func work(ctx context.Context) error { return ctx.Err() }

func onePath(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx) // want `the lease lease is not unlocked on all paths: line 19 is reached without lease.Unlock\(\)`
	if err != nil {
		return err
	}
	if err := work(lease.Context()); err != nil {
		return err
	}
	return lease.Unlock()
}

func never(ctx context.Context, s *dibs.Semaphore) error {
	permits, err := s.Permits(2).Lock(ctx) // want `the lease permits is not unlocked`
	if err != nil {
		return err
	}
	return work(permits.Context())
}

func discarded(ctx context.Context, m *dibs.RWMutex) error {
	_, err := m.Reader().Lock(ctx) // want `the lease is discarded, so nothing can unlock it`
	return err
}

func deferLock(ctx context.Context, m *dibs.Mutex) error {
	defer m.Lock(ctx) // want `the lease is discarded`
	return work(ctx)
}

func ignored(ctx context.Context, m *dibs.MultiMutex) {
	m.TryLock(ctx) // want `the lease is discarded`
}

func inLoop(ctx context.Context, locks *dibs.Client, names []string) error {
	for _, name := range names {
		lease, err := locks.Mutex(name).Lock(ctx) // want `the lease lease is not unlocked`
		if err != nil {
			return err
		}
		if err := work(lease.Context()); err != nil {
			return err
		}
	}
	return nil
}

func continued(ctx context.Context, locks *dibs.Client, names []string) error {
	for _, name := range names {
		lease, err := locks.Mutex(name).TryLock(ctx) // want `the lease lease is not unlocked`
		if err != nil {
			continue
		}
		if name == "skip" {
			continue
		}
		if err := lease.Unlock(); err != nil {
			return err
		}
	}
	return nil
}

func overwritten(ctx context.Context, a, b *dibs.Mutex) error {
	lease, err := a.Lock(ctx) // want `the lease lease is not unlocked`
	if err != nil {
		return err
	}
	lease, err = b.Lock(ctx)
	if err != nil {
		return err
	}
	return lease.Unlock()
}

func switched(ctx context.Context, m *dibs.Mutex, n int) error {
	lease, err := m.TryLock(ctx) // want `the lease lease is not unlocked`
	if err != nil {
		return err
	}
	switch n {
	case 0:
		return lease.Unlock()
	case 1:
		return lease.Err()
	default:
		return lease.Unlock()
	}
}

// The second error is not that of the acquire, so there is a lease.
func secondError(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx) // want `the lease lease is not unlocked`
	if err != nil {
		return err
	}
	err = work(lease.Context())
	if err != nil {
		return err
	}
	return lease.Unlock()
}

func wrongBranch(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx) // want `the lease lease is not unlocked`
	if errors.Is(err, dibs.ErrBusy) {
		return lease.Unlock()
	}
	return err
}

func campaign(ctx context.Context, e *dibs.Election) (uint64, error) {
	term, err := e.Campaign(ctx) // want `the lease term is not unlocked`
	if err != nil {
		return 0, err
	}
	return term.Fence(), nil
}

func methodValue(ctx context.Context, m *dibs.Mutex) error {
	lock := m.Lock
	lease, err := lock(ctx) // want `the lease lease is not unlocked`
	if err != nil {
		return err
	}
	return lease.Err()
}

// A locker is implemented by Mutex, SharedLock and MultiMutex.
type locker interface {
	Lock(ctx context.Context, options ...dibs.Option) (*dibs.Lease, error)
}

func throughInterface(ctx context.Context, l locker) error {
	lease, err := l.Lock(ctx) // want `the lease lease is not unlocked`
	if err != nil {
		return err
	}
	return work(lease.Context())
}

func generic[L locker](ctx context.Context, l L) error {
	lease, err := l.Lock(ctx) // want `the lease lease is not unlocked`
	if err != nil {
		return err
	}
	return work(lease.Context())
}

func downgraded(ctx context.Context, m *dibs.RWMutex) error {
	lease, err := m.Writer().Lock(ctx) // want `the lease lease is not unlocked`
	if err != nil {
		return err
	}
	return lease.Downgrade(ctx)
}

func withLease(ctx context.Context, s *dibs.Semaphore) error {
	lease, err := s.Permits(2).Lock(ctx) // want `the lease lease is not unlocked`
	if err != nil {
		return err
	}
	ctx, cancel := dibs.WithLease(ctx, lease)
	defer cancel()
	return work(ctx)
}

func inLiteral(ctx context.Context, m *dibs.Mutex) func() error {
	return func() error {
		lease, err := m.Lock(ctx) // want `the lease lease is not unlocked`
		if err != nil {
			return err
		}
		return work(lease.Context())
	}
}

func declared(ctx context.Context, m *dibs.Mutex) error {
	var lease, err = m.Lock(ctx) // want `the lease lease is not unlocked`
	if err != nil {
		return err
	}
	return work(lease.Context())
}
