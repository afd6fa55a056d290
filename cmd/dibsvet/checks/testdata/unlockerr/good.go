package unlockerr

import (
	"context"
	"errors"

	"github.com/dibslock/dibs"
)

func workWith(ctx context.Context) error { return ctx.Err() }

func joined(ctx context.Context, m *dibs.Mutex) (err error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Unlock()) }()
	return work()
}

func withContext(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock()
	return workWith(lease.Context())
}

func withErr(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock()
	if err := work(); err != nil {
		return err
	}
	return lease.Err()
}

func withFence(ctx context.Context, m *dibs.Mutex, save func(fence uint64) error) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock()
	return save(lease.Fence())
}

func explicitUnlock(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock() // for the paths below; a second Unlock returns nil
	if err := work(); err != nil {
		return err
	}
	return lease.Unlock()
}

func passedOn(ctx context.Context, m *dibs.Mutex, use func(*dibs.Lease) error) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock()
	return use(lease)
}

func extended(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx, dibs.NoRenew())
	if err != nil {
		return err
	}
	defer lease.Unlock()
	return lease.Extend(ctx, 1)
}

// The discard is visible.
func onPurpose(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = lease.Unlock() }()
	return work()
}

// It has no error result.
func noResult(ctx context.Context, m *dibs.Mutex) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return
	}
	defer lease.Unlock()
	_ = work()
}

// The error result is that of another function.
func inLiteralWithoutResult(ctx context.Context, m *dibs.Mutex) error {
	go func() {
		lease, err := m.Lock(ctx)
		if err != nil {
			return
		}
		defer lease.Unlock()
		_ = work()
	}()
	return nil
}

// The caller has the lease, and may check it.
func parameter(lease *dibs.Lease) error {
	defer lease.Unlock()
	return work()
}

type worker struct{ lease *dibs.Lease }

func (w worker) field() error {
	defer w.lease.Unlock()
	return work()
}

// It is not a lease of dibs.
type mutex struct{}

func (mutex) Unlock() error { return nil }

func otherLibrary() error {
	var m mutex
	defer m.Unlock()
	return work()
}
