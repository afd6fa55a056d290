package unlockerr

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/dibslock/dibs"
)

// The forms in which programs unlock.

func inLoop(ctx context.Context, locks *dibs.Client, names []string) error {
	for _, name := range names {
		err := func() error {
			lease, err := locks.Mutex(name).Lock(ctx)
			if err != nil {
				return err
			}
			defer lease.Unlock() // want `nothing in this function notices the loss`
			return work()
		}()
		if err != nil {
			return err
		}
	}
	return nil
}

func inBranch(ctx context.Context, m *dibs.Mutex, needed bool) error {
	if needed {
		lease, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		defer lease.Unlock() // want `nothing in this function notices the loss`
	}
	return work()
}

func inSwitch(ctx context.Context, m *dibs.Mutex) error {
	switch lease, err := m.TryLock(ctx); {
	case errors.Is(err, dibs.ErrBusy):
		return nil
	case err != nil:
		return err
	default:
		defer lease.Unlock() // want `nothing in this function notices the loss`
		return work()
	}
}

type service struct {
	locks *dibs.Client
	mu    sync.Mutex
}

func (s *service) method(ctx context.Context, id string) (string, error) {
	lease, err := s.locks.Mutex(id).Lock(ctx)
	if err != nil {
		return "", fmt.Errorf("lock %s: %w", id, err)
	}
	defer lease.Unlock() // want `nothing in this function notices the loss`
	s.mu.Lock()
	defer s.mu.Unlock()
	return id, work()
}

func generic[T any](ctx context.Context, m *dibs.Mutex, f func() (T, error)) (T, error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		var zero T
		return zero, err
	}
	defer lease.Unlock() // want `nothing in this function notices the loss`
	return f()
}

func declared(ctx context.Context, m *dibs.Mutex) error {
	var (
		lease *dibs.Lease
		err   error
	)
	if lease, err = m.Lock(ctx); err != nil {
		return err
	}
	defer lease.Unlock() // want `nothing in this function notices the loss`
	return work()
}

func logged(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	log.Println("locked", lease.Name())
	defer log.Println("done")
	defer lease.Unlock() // want `nothing in this function notices the loss`
	return work()
}

// Something notices the loss.

func loggedError(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err := lease.Unlock(); err != nil {
			log.Println(err)
		}
	}()
	return work()
}

func contextOfLease(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock()
	ctx = lease.Context()
	return workWith(ctx)
}

func inGoroutine(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock()
	done := make(chan error, 1)
	go func() { done <- workWith(lease.Context()) }()
	return <-done
}

func storedLease(ctx context.Context, m *dibs.Mutex, held map[string]*dibs.Lease) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock()
	held[lease.Name()] = lease
	return work()
}
