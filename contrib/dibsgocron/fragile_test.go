package dibsgocron_test

import (
	"context"
	"sync/atomic"

	"github.com/dibslock/dibs/driver"
)

// A fragile store does not answer while it is down.
type fragile struct {
	*driver.Full
	down atomic.Bool
}

func newFragile(store driver.Store) *fragile { return &fragile{Full: driver.Complete(store)} }

// wait returns nil if the store is up, and otherwise an unanswered call's error.
func (s *fragile) wait(ctx context.Context) error {
	if !s.down.Load() {
		return nil
	}
	<-ctx.Done()
	return &driver.UnavailableError{Op: "request", Cause: ctx.Err()}
}

func (s *fragile) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	within, cancel := context.WithDeadline(ctx, r.Until)
	defer cancel()
	if err := s.wait(within); err != nil {
		return driver.AcquireReply{}, err
	}
	return s.Store.Acquire(ctx, r)
}

func (s *fragile) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	if err := s.wait(ctx); err != nil {
		errs := make([]error, len(requests))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	return s.Store.Extend(ctx, requests)
}
