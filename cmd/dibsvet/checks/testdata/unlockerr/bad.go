// Package unlockerr has functions that do not notice the loss of a lease.
package unlockerr

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs"
)

func work() error { return nil }

func plain(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock() // want `nothing in this function notices the loss of the lease: join the error of lease.Unlock\(\) with its result`
	return work()
}

func twoResults(ctx context.Context, m *dibs.RWMutex) (int, error) {
	lease, err := m.Reader().Lock(ctx)
	if err != nil {
		return 0, err
	}
	defer lease.Unlock() // want `nothing in this function notices the loss`
	if err := work(); err != nil {
		return 0, err
	}
	return 1, nil
}

func namedResult(ctx context.Context, s *dibs.Semaphore) (failure error) {
	permits, err := s.Permits(2).Lock(ctx)
	if err != nil {
		return err
	}
	defer permits.Unlock() // want `nothing in this function notices the loss`
	return work()
}

func onlyName(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx)
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	defer lease.Unlock() // want `nothing in this function notices the loss`
	fmt.Println(lease.Name(), lease != nil)
	return work()
}

func literal(ctx context.Context, m *dibs.Mutex) func() error {
	return func() error {
		lease, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		defer lease.Unlock() // want `nothing in this function notices the loss`
		return work()
	}
}

func inDeferredLiteral(ctx context.Context, m *dibs.MultiMutex) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { // want `nothing in this function notices the loss`
		fmt.Println("done")
		lease.Unlock()
	}()
	return work()
}

// There is no fix: in this function err is declared alone.
func errAlone(ctx context.Context, m *dibs.Mutex) error {
	err := work()
	if err != nil {
		return err
	}
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock() // want `nothing in this function notices the loss`
	return work()
}

// There is no fix: at the defer, the result has no name.
func shadowedResult(ctx context.Context, m *dibs.Mutex) (err error) {
	if lease, err := m.TryLock(ctx); err == nil {
		defer lease.Unlock() // want `nothing in this function notices the loss`
	}
	return work()
}
