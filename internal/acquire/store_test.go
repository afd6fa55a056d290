package acquire

import (
	"context"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
)

// answers is a store that always returns the same error.
type answers struct {
	*driver.Full
	err error
}

func (s *answers) Acquire(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
	return driver.AcquireReply{}, s.err
}

func (s *answers) Resize(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
	return driver.AcquireReply{}, s.err
}

func (s *answers) Release(context.Context, driver.ReleaseRequest) (bool, error) { return true, s.err }

func (s *answers) Extend(context.Context, []driver.ExtendRequest) []error { return []error{s.err} }

// The first success after a failure to reach the store should mean that the store is back.
func TestStoreIsBack(t *testing.T) {
	operations := map[string]func(context.Context, *Store){
		"acquire": func(ctx context.Context, s *Store) { _, _ = s.Acquire(ctx, driver.AcquireRequest{}) },
		"resize":  func(ctx context.Context, s *Store) { _, _ = s.Resize(ctx, driver.AcquireRequest{}) },
		"release": func(ctx context.Context, s *Store) { _, _ = s.Release(ctx, driver.ReleaseRequest{}) },
		"extend":  func(ctx context.Context, s *Store) { _ = s.Extend(ctx, time.Now().Add(time.Hour), nil) },
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, operation := range operations {
		t.Run(name, func(t *testing.T) {
			server, back, accepts := &answers{Full: &driver.Full{}}, 0, false
			s := &Store{Full: driver.Complete(server), IsBack: func() bool { back++; return accepts }}
			do := func(ctx context.Context, err error, want int, when string) {
				t.Helper()
				server.err = err
				if operation(ctx, s); back != want {
					t.Errorf("%s: back %d times, want %d", when, back, want)
				}
			}
			unreachable, refused := &driver.UnavailableError{Op: name}, &driver.UnavailableError{Op: name, Refused: true}
			do(t.Context(), nil, 0, "at first")
			do(t.Context(), refused, 0, "the store answered")
			do(ended, unreachable, 0, "the caller gave up")
			do(t.Context(), &driver.UnavailableError{Op: name, Unsent: true}, 0, "the request waited in this process")
			do(t.Context(), nil, 0, "no failure so far")
			do(t.Context(), unreachable, 0, "a failure")
			do(t.Context(), refused, 0, "refused: it may still be loading")
			do(t.Context(), driver.ErrLost, 1, "an answer")
			do(t.Context(), nil, 2, "not accepted, so once more")
			accepts = true
			do(t.Context(), nil, 3, "accepted")
			do(t.Context(), nil, 3, "no further failure")
			do(t.Context(), &driver.UnavailableError{Op: name, Unsent: true, Unreached: true}, 3, "no connection")
			do(t.Context(), nil, 4, "the store is back")
		})
	}
}
