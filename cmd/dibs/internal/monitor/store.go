package monitor

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// A store records how its operations end.
type store struct {
	*driver.Full
	health *health
}

// Acquire implements driver.Store. It retries until the store answered once, as long as no
// connection can be opened. Such a failure sent no request. So Acquire returns it as refused, and
// the client does not cancel, which would take as long again.
func (s *store) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	const pause = 50 * time.Millisecond
	for {
		sent := time.Now()
		answer, err := s.Store.Acquire(ctx, r)
		s.health.record(ctx, sent, err)
		if err == nil || !unsent(err) || s.health.everAnswered() {
			return answer, err
		}
		// Stop early: a dial that ends at the deadline is not recognised as unsent.
		if time.Until(r.Until) < 2*time.Since(sent)+pause || !sleep(ctx, pause) {
			return answer, &driver.UnavailableError{Op: "acquire", Name: r.Name, Cause: noConnection{causeOf(err)}, Refused: true}
		}
	}
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

var errNoAnswer = &driver.UnavailableError{Op: "extend", Cause: errors.New("no answer so far")}

// Extend implements driver.Store. A renewal may wait for its answer as long as the lease lasts,
// so it counts as failed before it ends.
func (s *store) Extend(ctx context.Context, holds []driver.ExtendRequest) []error {
	sent := time.Now()
	s.health.setRenewalSent(sent)
	late := time.AfterFunc(Delay, func() { s.health.record(ctx, sent, errNoAnswer) })
	defer late.Stop()
	errs := s.Store.Extend(ctx, holds)
	s.health.setRenewalSent(time.Time{})
	for _, err := range errs {
		if errors.Is(err, dibs.ErrUnavailable) {
			s.health.record(ctx, sent, err)
			return errs
		}
	}
	s.health.record(ctx, sent, nil)
	return errs
}

// Release implements driver.Store.
func (s *store) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	sent := time.Now()
	done, err := s.Store.Release(ctx, r)
	s.health.record(ctx, sent, err)
	return done, err
}

// Inspect implements driver.Inspector.
func (s *store) Inspect(ctx context.Context, name string) (driver.State, error) {
	sent := time.Now()
	state, err := s.Full.Inspect(ctx, name)
	s.health.record(ctx, sent, err)
	return state, err
}

// A noConnection is the cause of an unsent request, because no connection could be opened.
type noConnection struct{ error }

func (e noConnection) Unwrap() error { return e.error }

// IsAway reports whether the store was not reached, or did not answer, so that a later attempt can
// succeed. It is false if the store rejects the request, for example for lack of a right.
func IsAway(err error) bool {
	var u *driver.UnavailableError
	return errors.As(err, &u) && (!u.Refused || errors.As(err, new(noConnection)))
}

// IsUnreached reports whether no connection to the store could be opened.
func IsUnreached(err error) bool { return unsent(err) || errors.As(err, new(noConnection)) }

// unsent reports whether an operation failed only because no connection could be opened, and
// another attempt may succeed.
func unsent(err error) bool {
	var u *driver.UnavailableError
	return errors.As(err, &u) && u.Unreached && !u.Refused
}

// causeOf returns an UnavailableError's cause, without the operation and the name.
func causeOf(err error) error {
	var u *driver.UnavailableError
	if errors.As(err, &u) && u.Cause != nil {
		return u.Cause
	}
	return err
}
