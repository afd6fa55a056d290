package acquire

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/answer"
)

// A Store is a client's store. It detects when the store is back after a failure, perhaps without
// its data. It is safe for concurrent use.
type Store struct {
	*driver.Full
	IsBack  func() bool // called when the store is back; false asks for another call at the next success
	failing atomic.Bool // an operation could not reach the store, and none succeeded since
}

// Acquire is the store's Acquire.
func (s *Store) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	reply, err := s.Store.Acquire(ctx, r)
	s.observe(ctx, err)
	return reply, err
}

// Resize is the store's Resize.
func (s *Store) Resize(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	reply, err := s.Full.Resize(ctx, r)
	s.observe(ctx, err)
	return reply, err
}

// Release is the store's Release.
func (s *Store) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	released, err := s.Store.Release(ctx, r)
	s.observe(ctx, err)
	return released, err
}

// NotifyWanted is the store's NotifyWanted, with a time limit.
func (s *Store) NotifyWanted(ctx context.Context, until time.Time, r driver.WantedRequest) (bool, error) {
	within, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	wanted, err := s.Full.NotifyWanted(within, r)
	s.observe(ctx, err)
	return wanted, err
}

// ReserveFences is the store's ReserveFences, with a time limit.
func (s *Store) ReserveFences(ctx context.Context, until time.Time, r driver.FenceRequest) (driver.FenceReply, error) {
	within, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	reply, err := s.Full.ReserveFences(within, r)
	s.observe(ctx, err)
	return reply, err
}

// Extend is the store's Extend, with a time limit.
func (s *Store) Extend(ctx context.Context, until time.Time, requests []driver.ExtendRequest) []error {
	within, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	errs := s.Store.Extend(within, requests)
	for _, err := range errs {
		s.observe(ctx, err)
	}
	return errs
}

// observe records an operation's outcome. It ignores failures with an ended ctx, and failures of
// requests that waited only in this process: they reveal nothing about the store.
func (s *Store) observe(ctx context.Context, err error) {
	switch {
	case errors.Is(err, driver.ErrUnavailable):
		if !answer.IsRefusal(err) && !answer.IsUnsentHere(err) && ctx.Err() == nil {
			s.failing.Store(true)
		}
	case s.failing.Load() && s.failing.CompareAndSwap(true, false):
		if !s.IsBack() {
			s.failing.Store(true)
		}
	}
}
