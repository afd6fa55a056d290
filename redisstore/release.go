package redisstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/pipeline"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Cancel implements driver.Store.
func (s *Store) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	if err := s.checkRequest(r); err != nil {
		return err
	}
	entry := wire.Entry(r)
	errs := make([]error, 1+len(r.With))
	var group sync.WaitGroup
	for i, name := range r.With {
		group.Go(func() { errs[i+1] = s.cancelName(ctx, r, name, entry) })
	}
	errs[0] = s.cancelName(ctx, r, r.Name, entry)
	group.Wait()
	return worstOf(errs)
}

// worstOf returns one of the errors, or nil. A sent request's error comes first: an unsent request
// does not prove that nothing was sent.
func worstOf(errs []error) (worst error) {
	for _, err := range errs {
		if err != nil && (worst == nil || isUnsent(worst)) {
			worst = err
		}
	}
	return worst
}

func isUnsent(err error) bool {
	var u *driver.UnavailableError
	return errors.As(err, &u) && u.Unsent
}

func (s *Store) cancelName(ctx context.Context, r driver.AcquireRequest, name, entry string) error {
	_, err := s.release(ctx, "cancel", driver.ReleaseRequest{Name: name, Token: r.Token, Until: r.Until, Vote: r.Vote}, entry)
	return err
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	return s.release(ctx, "release", r, "")
}

// release sends a release. With a queue entry it also leaves the queue.
func (s *Store) release(ctx context.Context, op string, rel driver.ReleaseRequest, entry string) (bool, error) {
	if err := errors.Join(s.check(rel.Name), s.checkToken(rel.Name, rel.Token)); err != nil {
		return false, err
	}
	if rel.Until.IsZero() {
		rel.Until = time.Now().Add(driver.OperationTimeout)
	}
	for range maxTries {
		r := s.requests.Get()
		s.format.Release(&r.Request, rel, entry, s.mixed.has(rel.Name))
		reply, retried := s.do(ctx, r, rel.Until)
		if retried {
			reply.Err = pipeline.UnknownOutcome(reply.Err)
		}
		if reply.Err != nil {
			return false, s.wrapReplyError(ctx, rel.Until, op, []string{rel.Name}, reply.Err)
		}
		switch n, ok := reply.Value.(int64); {
		case !ok || n < 0:
			return false, wrapError(op, rel.Name, redisconn.Unexpected(reply.Value))
		case n > 1: // void
		case n == 0 && retried && entry == "":
			return false, wrapError(op, rel.Name, errOutcomeUnknown)
		default:
			return n == 1, nil
		}
	}
	return false, wrapError(op, rel.Name, errExpired)
}
